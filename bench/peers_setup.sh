#!/usr/bin/env bash
# The libraries that we are timed beside, in environments of their own: .deps/peers (PyTorch) and .deps/peers-jax (JAX).
# Safe to run again: it makes only what is missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

environment() {  # NAME REQUIREMENT...
  local folder=$root/.deps/$1
  shift
  [ ! -e "$folder/bin/python" ] || return 0
  echo "setup: ${folder#"$root"/} with $*"
  rm -rf "$folder.part"
  python3 -m venv "$folder.part"
  "$folder.part/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
  mv "$folder.part" "$folder"  # only its python is used: scripts in bin/ still name the old place
}
mkdir -p "$root/.deps"
environment peers torch==2.11.0 numpy tqdm nflows==0.14 normflows==1.7.3 zuko==1.6.0 FrEIA==0.2 glasflow==0.4.1
environment peers-jax flowjax==19.1.2 distrax==0.1.9 optax
