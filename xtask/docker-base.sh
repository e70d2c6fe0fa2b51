#!/usr/bin/env bash
# Makes the two images that docker/Dockerfile begins with, for a machine that can pull none: Debian's from
# its packages, and the same with this machine's Rust and the crates that it has downloaded already.
# Run it as root; an image that is there is left as it is. Usage: xtask/docker-base.sh BASE BUILD
set -euo pipefail
base=${1:-debian:bookworm-slim}
build=${2:-rust:1.95-bookworm}
has() { docker image inspect "$1" >/dev/null 2>&1; }

if has "$base" && has "$build"; then exit 0; fi
if [ "$(id -u)" != 0 ]; then echo "this needs root: debootstrap makes devices and changes owners" >&2; exit 1; fi
command -v debootstrap >/dev/null || apt-get install -y -qq --no-install-recommends debootstrap >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
debootstrap --variant=minbase bookworm "$work/system" >&2
rm -rf "$work"/system/var/cache/apt/archives/*.deb "$work"/system/var/lib/apt/lists/*
if ! has "$base"; then
  tar -C "$work/system" -c . | docker import --change 'CMD ["bash"]' - "$base" >&2
fi
if ! has "$build"; then
  rust=$work/system/usr/local/rust
  cargo=$work/system/usr/local/cargo
  mkdir -p "$rust" "$cargo/registry" "$work/system/etc/ssl/certs"
  sysroot=$(rustc --print sysroot)
  tar -C "$sysroot" -c --exclude=share/doc --exclude=share/man bin lib libexec | tar -C "$rust" -x
  # Whom this machine trusts, and what it need not fetch again.
  cp -L /etc/ssl/certs/ca-certificates.crt "$work/system/etc/ssl/certs/" 2>/dev/null || true
  for part in index cache; do
    cp -r "${CARGO_HOME:-$HOME/.cargo}/registry/$part" "$cargo/registry/" 2>/dev/null || true
  done
  path=/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  tar -C "$work/system" -c . | docker import --change "ENV PATH=$path" --change "ENV CARGO_HOME=/usr/local/cargo" \
    --change 'CMD ["bash"]' - "$build" >&2
fi
