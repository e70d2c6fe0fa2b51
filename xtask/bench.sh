#!/usr/bin/env bash
# Starts a node of its own and lets leveret-perf compare it with the broker named by PEER_URI and PEER_PID (its
# process ids, separated by commas), workload by workload in turn. Writes docs/benchmarks.md.
# NODES=3 starts a cluster and compares quorum queues, and NODES=1 with QUORUM=1 one node with quorum queues: both
# write docs/benchmarks-quorum-NODES.md.
# ONLY, ROUNDS and SECONDS_EACH narrow it down.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(xtask/cargo.sh target)/release
port=${BENCH_PORT:-56720} # and those above it
nodes=${NODES:-1}
data=$(xtask/cargo.sh target)/bench-data # on the disk: a file system in memory would sync for nothing
rm -rf "$data"

page=docs/benchmarks.md
quorum=()
if [ "$nodes" -gt 1 ] || [ -n "${QUORUM:-}" ]; then
  page=docs/benchmarks-quorum-$nodes.md
  quorum=(--quorum)
fi
cluster=()
if [ "$nodes" -gt 1 ]; then
  peers=$(for i in $(seq "$nodes"); do printf '"n%s@127.0.0.1:%s",' "$i" $((port + 100 + i)); done)
  cluster=(--set cluster.secret=only-for-this-benchmark --set "cluster.peers=[${peers%,}]")
fi

pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait "${pids[@]}" 2>/dev/null; rm -rf "$data"' EXIT
for i in $(seq "$nodes"); do
  own=()
  if [ "$nodes" -gt 1 ]; then own=(--set "node.name=n$i" --set "listeners.peer=127.0.0.1:$((port + 100 + i))"); fi
  "$bin/leveret" --set "data_dir=$data/$i" --set "listeners.amqp=127.0.0.1:$((port + i - 1))" \
    --set listeners.http=none --set listeners.metrics=none --set log.level=warn "${cluster[@]}" "${own[@]}" &
  pids+=("$!")
done
for i in $(seq "$nodes"); do
  for _ in $(seq 300); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$((port + i - 1))") 2>/dev/null; then break; fi
    kill -0 "${pids[i - 1]}" # it has given up: so do we
    sleep 0.1
  done
done
peer=()
if [ -n "${PEER_URI:-}" ]; then
  peer=(--peer-uri "$PEER_URI" ${PEER_PID:+--peer-pid "$PEER_PID"})
fi
"$bin/leveret-perf" compare --uri "amqp://guest:guest@127.0.0.1:$port/%2f" --pid "$(IFS=,; echo "${pids[*]}")" \
  "${peer[@]}" "${quorum[@]}" --rounds "${ROUNDS:-3}" --seconds "${SECONDS_EACH:-5}" ${ONLY:+--only "$ONLY"} --out "$page"
