#!/usr/bin/env bash
# Starts a node of its own and lets leveret-perf compare it with the broker named by PEER_URI and PEER_PID (its
# process ids, separated by commas), workload by workload in turn. Writes docs/benchmarks.md.
# ONLY, ROUNDS and SECONDS_EACH narrow it down.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$(xtask/cargo.sh target)/release
port=${BENCH_PORT:-56720}
data=$(xtask/cargo.sh target)/bench-data # on the disk: a file system in memory would sync for nothing
rm -rf "$data"
"$bin/leveret" --set "data_dir=$data" --set "listeners.amqp=127.0.0.1:$port" --set listeners.http=none \
  --set listeners.metrics=none --set log.level=warn &
node=$!
trap 'kill "$node" 2>/dev/null; wait "$node" 2>/dev/null; rm -rf "$data"' EXIT
for _ in $(seq 100); do
  if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then break; fi
  kill -0 "$node" # it has given up: so do we
  sleep 0.1
done
peer=()
if [ -n "${PEER_URI:-}" ]; then
  peer=(--peer-uri "$PEER_URI" ${PEER_PID:+--peer-pid "$PEER_PID"})
fi
"$bin/leveret-perf" compare --uri "amqp://guest:guest@127.0.0.1:$port/%2f" --pid "$node" "${peer[@]}" \
  --rounds "${ROUNDS:-3}" --seconds "${SECONDS_EACH:-5}" ${ONLY:+--only "$ONLY"} --out docs/benchmarks.md
