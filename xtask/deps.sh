#!/usr/bin/env bash
# Installs what the other targets need, and only what is absent, so a second call costs a fraction of a second.
# `deps.sh build` leaves out what only tests need.
#
#   a C++ compiler   RocksDB
#   libclang         its bindings (bindgen loads it)
#   make             the allocator
#   python3 + venv   the end-to-end tests with pika
#   openssl          certificates for the tests of TLS
#   cargo-nextest    the test runner
set -euo pipefail
cd "$(dirname "$0")/.."
for_tests=$([ "${1:-test}" = build ] || echo yes)

if ! command -v cargo >/dev/null; then
  echo "cargo is missing: install Rust 1.95 or later with rustup (https://rustup.rs), then try again" >&2
  exit 1
fi

# libclang-cpp is another library, which a compiler brings along.
has_libclang() {
  ldconfig -p 2>/dev/null | grep -q 'libclang[-.0-9]*\.so' ||
    compgen -G '/usr/lib/llvm-*/lib/libclang[-.][0-9s]*' >/dev/null || [ -n "${LIBCLANG_PATH:-}" ]
}
has_venv() { python3 -c 'import ensurepip, venv' 2>/dev/null; }

packages=()
command -v "${CXX:-c++}" >/dev/null || packages+=(g++)
has_libclang || packages+=(libclang-dev)
command -v make >/dev/null || packages+=(make)
if [ -n "$for_tests" ]; then
  has_venv || packages+=(python3 python3-venv)
  command -v openssl >/dev/null || packages+=(openssl)
fi
if [ ${#packages[@]} -gt 0 ]; then
  if ! command -v apt-get >/dev/null; then
    echo "please install what Debian calls: ${packages[*]}" >&2
    exit 1
  fi
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  echo "installing ${packages[*]}" >&2
  "${root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}" >&2
fi

if [ -n "$for_tests" ]; then
  cargo nextest --version >/dev/null 2>&1 || cargo install --locked --quiet cargo-nextest
fi
xtask/rocksdb.sh >/dev/null
