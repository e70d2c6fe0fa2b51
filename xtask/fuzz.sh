#!/usr/bin/env bash
# Runs the fuzzers, each an example fuzz_* of its crate: TARGET=frames for one of them, SECONDS_EACH (600) for each.
set -euo pipefail
cd "$(dirname "$0")/.."
for file in crates/*/examples/fuzz_*"${TARGET:-}"*.rs; do
  crate=${file#crates/} crate=${crate%%/*}
  name=$(basename "$file" .rs)
  echo "== $crate: $name, ${SECONDS_EACH:-600} s"
  xtask/cargo.sh run --release --locked --quiet -p "$crate" --example "$name" -- "${SECONDS_EACH:-600}"
done
