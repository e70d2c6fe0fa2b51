#!/usr/bin/env bash
# Prints a python3 with pika, for the end-to-end tests; made once per version in the cache.
set -euo pipefail
pika=1.4.4
folder=${XDG_CACHE_HOME:-$HOME/.cache}/leveret/python/pika-$pika
if [ ! -x "$folder/ready" ]; then
  mkdir -p "$folder"
  exec 9>"$folder/lock"
  flock 9 # several test processes may ask at once
  if [ ! -x "$folder/ready" ]; then
    python3 -m venv "$folder/venv" >&2
    "$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pika==$pika" >&2
    ln -sf venv/bin/python "$folder/ready"
  fi
fi
echo "$folder/venv/bin/python"
