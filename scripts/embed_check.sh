#!/usr/bin/env bash
# Trains a small flow with the installed program and runs the embedding example on it.
#   embed_check.sh DIFFEO_PROGRAM EMBED_PROGRAM
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" toy moons -n 4000 --seed 1 "$folder/moons.h5"
"$1" train "$folder/moons.h5" --flow nsf --layers 3 --width 32 --steps 200 --seed 1 -o "$folder/flow.h5" > "$folder/train.log" ||
  { cat "$folder/train.log"; exit 1; }
"$2" "$folder/flow.h5"
