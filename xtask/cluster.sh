#!/usr/bin/env bash
# Three nodes on this machine, in the foreground, until Ctrl-C: config/three-node/{a,b,c}.toml.
# Usage: xtask/cluster.sh PATH-OF-LEVERET [ARGUMENTS FOR ALL NODES]
set -euo pipefail
leveret=$1
shift
cd "$(dirname "$0")/.."

pids=()
stop() {
    trap - INT TERM EXIT
    for pid in "${pids[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
    wait || true
}
trap stop INT TERM EXIT

for node in a b c; do
    "$leveret" --config "config/three-node/$node.toml" "$@" 2> >(sed -u "s/^/$node | /" >&2) &
    pids+=("$!")
done
echo "AMQP: 127.0.0.1:5672, 5673, 5674; HTTP: 127.0.0.1:15672, 15673, 15674 (guest, guest)"
# One that ends by itself ends the others.
wait -n || true
