#!/usr/bin/env bash
# All that wants a GPU, in at most six minutes: builds with CUDA, runs the tests that are for GPUs, and prints the table
# of bench/peers.py for CUDA (ours beside nflows and zuko, as they are and with torch.compile, with peak memory).
# Without a GPU it says so and is content. One step's failure does not stop the next; any failure is one in the end.
# Variables, for a machine from which nothing can be fetched:
#   LibTorch_ROOT     a LibTorch with CUDA (the folder with include/ and lib/); else that of PYTHON's torch, else
#                     scripts/setup.sh gets one
#   DIFFEO_BUILD      a folder built already with -DDIFFEO_CUDA=ON -DDIFFEO_BENCH=ON: nothing is built then
#   DIFFEO_LIBRARIES  a folder of further shared libraries that the build needs (libhdf5, libdnnl, ...)
#   PYTHON            a Python that has torch, nflows and zuko (default: .deps/peers, else python3)
#   SECONDS_AT_MOST   for everything (default 345)
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
nvidia-smi > /dev/null 2>&1 || { echo "skipped: no GPU"; exit 0; }

limit=${SECONDS_AT_MOST:-345}
failures=()
left() { echo $((limit - SECONDS)); }

# Runs a step for at most so many seconds, and says what it is, how it ended and how long it took.
step() {  # NAME SECONDS COMMAND...
  local name=$1 most=$2 began=$SECONDS rc
  shift 2
  [ "$most" -lt "$(left)" ] || most=$(left)
  printf '\n== %s (%d s so far)\n' "$name" "$SECONDS"
  if [ "$most" -lt 5 ]; then
    echo "-- $name: not begun, no time is left"
    failures+=("$name")
    return 1
  fi
  timeout --kill-after=5 "$most" "$@"
  rc=$?
  if [ $rc = 0 ]; then
    echo "-- $name: done in $((SECONDS - began)) s"
  else
    [ $rc != 124 ] || echo "-- $name: stopped after $most s"
    echo "-- $name: FAILED (exit status $rc) in $((SECONDS - began)) s"
    failures+=("$name")
  fi
  return $rc
}

python=${PYTHON:-$root/.deps/peers/bin/python}
[ -x "$(command -v "$python")" ] || python=python3
[ -n "${LibTorch_ROOT:-}" ] || LibTorch_ROOT=$("$python" -c '
import os, torch
if torch.version.cuda: print(os.path.dirname(torch.__file__))' 2> /dev/null)
build=${DIFFEO_BUILD:-$root/build/cuda}

step "machine" 20 nvidia-smi --query-gpu=name,memory.total,driver_version,compute_cap --format=csv,noheader
if [ -z "${DIFFEO_BUILD:-}" ]; then
  if [ -n "$LibTorch_ROOT" ]; then
    echo "LibTorch: $LibTorch_ROOT"
  else
    step "set up" 120 env -u LibTorch_ROOT DIFFEO_WITH_CUDA=1 scripts/setup.sh
    LibTorch_ROOT=$root/.deps/libtorch/torch
  fi
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  step "configure" 60 cmake --preset cuda -DDIFFEO_BENCH=ON -DLibTorch_ROOT="$LibTorch_ROOT" \
    -DCMAKE_CUDA_ARCHITECTURES="${architecture:-90}" &&
    step "build" 220 cmake --build "$build" --parallel "$(nproc)" --target diffeo diffeo_tests works_bench
fi
export LD_LIBRARY_PATH=${DIFFEO_LIBRARIES:+$DIFFEO_LIBRARIES:}$build/lib:${LibTorch_ROOT:+$LibTorch_ROOT/lib:}${LD_LIBRARY_PATH:-}
export DIFFEO_WORKS=$root/bench/works.json

# The tests for GPUs, in a few processes at once. GoogleTest says the last word on each.
gpu_tests() {
  local shards=4 shard folder rc=0 processes=()
  folder=$(mktemp -d)
  for ((shard = 0; shard < shards; ++shard)); do
    OMP_NUM_THREADS=1 GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard GTEST_BRIEF=1 \
      "$1/bin/diffeo_tests" --gtest_filter='*cuda*:*Cuda*:*CUDA*:*Gpu*:*GPU*' > "$folder/$shard" 2>&1 &
    processes+=($!)
  done
  for process in "${processes[@]}"; do wait "$process" || rc=1; done
  tail -n 40 "$folder"/*
  if grep -l 'Running 0 tests' "$folder"/*; then echo "there are no tests for GPUs in this build"; rc=1; fi
  rm -r "$folder"
  return $rc
}
export -f gpu_tests

table() {  # PEERS SECONDS
  step "$1" "$2" python3 bench/peers.py --device cuda --threads "$(nproc)" --program "$build/bin/works_bench" \
    --torch-python "$python" --peers "$1" --runs 7 --patience 60 --minutes "$(awk -v s="$2" 'BEGIN {print (s - 20) / 60}')"
}

if [ -x "$build/bin/works_bench" ]; then
  # Half of what is left goes to the tests at most: the table is wanted more.
  step "tests for GPUs" $(($(left) / 2)) bash -c 'gpu_tests "$1"' - "$build"
  table nflows,zuko $(($(left) * 2 / 3))
  table nflows+compile,zuko+compile "$(left)"
else
  echo "there is no $build/bin/works_bench: no tests, no table"
  failures+=("programs")
fi

printf '\n== done in %d s\n' "$SECONDS"
[ ${#failures[@]} = 0 ] || { printf 'failed: %s\n' "${failures[@]}"; exit 1; }
