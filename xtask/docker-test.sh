#!/usr/bin/env bash
# Runs docker/cluster.yaml for real: three nodes, a quorum queue, a node that is killed and comes back, all
# nodes stopped and started. Prints what it does as a transcript, and fails if anything is not as promised.
# Needs a Docker daemon and the image (make image); takes the ports 5672-5674, 15672-15674 and 15692-15694.
# TAKE_AS_IS=1: the image is not built again.
set -euo pipefail
cd "$(dirname "$0")/.."
project=leveret-test
export LEVERET_PASSWORD=${LEVERET_PASSWORD:-only-for-this-test} LEVERET_SECRET=${LEVERET_SECRET:-known-to-these-three-nodes}
# A daemon that may not raise its own limit cannot start a container with a higher one.
limit=$(ulimit -Hn)
if [ "$limit" != unlimited ] && [ "$limit" -lt 65536 ]; then export LEVERET_FILES=${LEVERET_FILES:-$limit}; fi
if docker compose version >/dev/null 2>&1; then compose=(docker compose); else compose=(docker-compose); fi
compose+=(-f docker/cluster.yaml -p "$project")
if [ -z "${TAKE_AS_IS:-}" ]; then make image; fi

quietly() { "${compose[@]}" "$@" >/dev/null 2>&1; }
finish() {
  code=$?
  if [ $code != 0 ]; then "${compose[@]}" logs --tail 40 >&2 || true; fi
  quietly down -v -t 5 || true
  exit $code
}
trap finish EXIT
say() { printf '\n$ %s\n' "$*"; }
shown() { say "docker compose $*"; "${compose[@]}" "$@" 2>/dev/null || { echo "failed: $*" >&2; return 1; }; }
inside() { local node=$1; shift; "${compose[@]}" exec -T "$node" "$@"; }
ctl() { local node=$1; shift; inside "$node" leveretctl --user admin --password "$LEVERET_PASSWORD" "$@"; }
shown_ctl() { say "docker compose exec $1 leveretctl ${*:2}"; ctl "$@"; }
# Waits until a command succeeds, 60 seconds at most.
until_true() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then echo "after a minute it is still not so: $what" >&2; return 1; fi
    sleep 0.2
  done
}
running() { [ "$(ctl "$1" cluster_status 2>/dev/null | grep -c "true")" = "$2" ]; }
serves() { ctl "$1" check_running; }
holds() { [ "$(ctl "$1" list_queues name messages 2>/dev/null | awk '$1 == "orders" { print $2 }')" = "$2" ]; }
load() {
  local node=$1; shift
  say "docker compose exec $node leveret-perf --queue orders $*"
  inside "$node" leveret-perf --uri "amqp://admin:$LEVERET_PASSWORD@127.0.0.1:5672/%2f" --quiet --queue orders \
    --queue-args '{"x-queue-type":"quorum"}' --persistent --confirms 1000 --keep "$@" | grep -E '^(published|confirmed|consumed|lost|dup|order|verif)'
}

quietly down -v -t 5 || true
shown up -d --no-build
until_true "three nodes run" running a 3
for node in a b c; do until_true "$node serves" serves $node; done
shown ps
shown_ctl a cluster_status

load a --messages 20000 --consumers 0
until_true "all messages are in the queue" holds b 20000
shown_ctl b quorum_status orders

leader=$(ctl b quorum_status orders | awk '$2 == "leader" { sub("leveret@", "", $1); print $1 }')
survivor=$([ "$leader" = b ] && echo c || echo b)
shown kill "$leader"
until_true "two nodes run" running "$survivor" 2
load "$survivor" --messages 10000 --consumers 0
until_true "nothing is lost" holds "$survivor" 30000
shown_ctl "$survivor" quorum_status orders

shown start "$leader"
until_true "three nodes run" running "$survivor" 3
until_true "$leader serves" serves "$leader"
shown stop
shown start
for node in a b c; do until_true "$node serves" serves $node; done
until_true "nothing is lost" holds a 30000
shown_ctl c list_queues name type messages
load c --publishers 0 --messages 30000 --ack-every 10
until_true "the queue is empty" holds a 0
printf '\nas promised\n'
