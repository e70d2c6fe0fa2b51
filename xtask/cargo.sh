#!/usr/bin/env bash
# cargo, with the target folder and the compiled RocksDB set. `xtask/cargo.sh target` prints the target folder.
#
# The target folder lies in the cache and not in the clone, so that a fresh clone does not start from nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/leveret/target}
if [ "${1:-}" = target ]; then echo "$CARGO_TARGET_DIR"; exit 0; fi
if [ "${1:-}" != fmt ]; then
  # An assignment of its own: inside `export` a failure would go unnoticed, and cargo would then compile
  # RocksDB its own way, for half an hour.
  library=$(xtask/rocksdb.sh)
  export ROCKSDB_STATIC=1 ROCKSDB_LIB_DIR=$library
fi
exec cargo "$@"
