#!/usr/bin/env bash
# Compiles RocksDB once per machine and prints the folder that holds librocksdb.a (for ROCKSDB_LIB_DIR).
#
# The crate librocksdb-sys would compile 343 C++ files one by one, in every target folder and profile: about
# 31 CPU minutes, most of it spent in reading the same headers again.  Here the same files are included into a
# few large units (RocksDB keeps itself fit for such a "unity" build), and the archive is kept in the cache,
# keyed by the crate's version, so a fresh clone or `cargo clean` never pays again.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(awk '/^name = "librocksdb-sys"$/ {getline; gsub(/version = |"/, ""); print; exit}' Cargo.lock)
[ -n "$version" ] || { echo "Cargo.lock names no librocksdb-sys" >&2; exit 1; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/leveret/rocksdb/${version//+/_}-1
if [ -f "$cache/librocksdb.a" ]; then echo "$cache"; exit 0; fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # two builds at once on one machine: the second waits and finds the archive
if [ -f "$cache/librocksdb.a" ]; then echo "$cache"; exit 0; fi

started=$(date +%s)
echo "compiling RocksDB ${version#*+}, once on this machine (a few minutes on two cores)" >&2
cargo fetch --quiet --locked
source=$(ls -d "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/librocksdb-sys-"$version" | head -n 1)
work=$cache/work
rm -rf "$work" && mkdir -p "$work"

: "${UNIT_FILES:=20}"
files=$(tr -d ' \r' <"$source/rocksdb_lib_sources.txt" | grep -v '^$' | grep -v '^util/build_version.cc$')
unit=0 count=0
while read -r file; do
  if [ $((count % UNIT_FILES)) = 0 ]; then unit=$((unit + 1)); fi
  count=$((count + 1))
  echo "#include \"$file\"" >>"$work/unit$(printf %02d $unit).cc"
done <<<"$files"
cp "$source/build_version.cc" "$work/build_version.cc"

flags=(-std=c++20 -O1 -g0 -w -fPIC -DNDEBUG -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX
  -DROCKSDB_PLATFORM_POSIX -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT
  -DROCKSDB_AUXV_GETAUXVAL_PRESENT -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT
  -I"$source/rocksdb/include" -I"$source/rocksdb" -I"$source")
case $(uname -m) in x86_64) flags+=(-msse2) ;; aarch64) flags+=(-march=armv8-a+crc+aes+crypto) ;; esac
export source work
printf '%s\n' "$work"/*.cc | xargs -P "$(nproc)" -I{} sh -c '
  unit=$(basename {} .cc); shift
  "${CXX:-c++}" "$@" -c {} -o "$work/$unit.o" || { echo "cannot compile $unit" >&2; exit 255; }
' sh x "${flags[@]}" >&2
ar crs "$work/librocksdb.a" "$work"/*.o
mv "$work/librocksdb.a" "$cache/librocksdb.a"
rm -rf "$work"
echo "RocksDB is compiled: $(($(date +%s) - started)) s" >&2
echo "$cache"
