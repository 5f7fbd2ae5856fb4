#!/usr/bin/env bash
# Installs what diffeo needs on Debian 12 or Ubuntu 24.04: system packages, and LibTorch into .deps/libtorch.
# Safe to run again: it does only what is missing. Variables that it reads:
#   LibTorch_ROOT      a LibTorch of your own (the folder with include/ and lib/); nothing is downloaded then
#   DIFFEO_CACHE       where wheels are kept (default: the user's cache folder, diffeo/wheels)
#   DIFFEO_WITH_CUDA   1 to unpack LibTorch's CUDA libraries too (default: 1 where nvcc is there)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${DIFFEO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/diffeo/wheels}
say() { printf '\033[1m%s\033[0m\n' "setup: $*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

[ "$(uname -m)" = x86_64 ] || [ -n "${LibTorch_ROOT:-}" ] ||
  die "the pinned LibTorch is for x86_64; set LibTorch_ROOT to one for $(uname -m)"

# ---- system packages ------------------------------------------------------------------------------
packages=(build-essential cmake ninja-build ccache git unzip python3 python3-pip
  libhdf5-dev nlohmann-json3-dev libboost-program-options-dev libcsv-dev zlib1g-dev libzip-dev libdnnl-dev libpng-dev
  libgtest-dev libbenchmark-dev gnuplot-nox fonts-dejavu-core)
missing=()
for package in "${packages[@]}"; do
  # A newer cmake, ninja or python from elsewhere serves as well.
  case $package in
    cmake) command -v cmake > /dev/null && continue ;;
    ninja-build) command -v ninja > /dev/null && continue ;;
    python3-pip) python3 -m pip --version > /dev/null 2>&1 && continue ;;
    gnuplot-nox) command -v gnuplot > /dev/null && continue ;;
  esac
  dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${missing[*]}"
  if [ "$(id -u)" = 0 ]; then as_root=""
  elif command -v sudo > /dev/null; then as_root=sudo
  else die "needs these packages, and neither root nor sudo is at hand; ask for: apt-get install ${missing[*]}"; fi
  $as_root apt-get update -qq
  DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi

# ---- LibTorch ---------------------------------------------------------------------------------------
[ -z "${LibTorch_ROOT:-}" ] || { say "LibTorch of your own: $LibTorch_ROOT"; exit 0; }
with_cuda=${DIFFEO_WITH_CUDA:-$(command -v nvcc > /dev/null && echo 1 || echo 0)}
target=$root/.deps/libtorch
stamp="torch 2.11.0 cuda=$with_cuda"
[ "$(cat "$target/.stamp" 2> /dev/null)" != "$stamp" ] || exit 0

wheels=(
  "torch==2.11.0 torch-2.11.0-cp311-cp311-manylinux_2_28_x86_64.whl 7aa2f9bbc6d4595ba72138026b2074be1233186150e9292865e04b7a63b8c67a"
  "nvidia-cuda-runtime==13.0.96 nvidia_cuda_runtime-13.0.96-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl 7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548"
  "nvidia-cuda-cupti==13.0.85 nvidia_cuda_cupti-13.0.85-py3-none-manylinux_2_25_x86_64.whl 4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8"
)
# What is unpacked of each wheel; the rest is for Python.
patterns_torch=('torch/include/*' torch/lib/libtorch_cpu.so torch/lib/libc10.so torch/lib/libgomp.so.1)
[ "$with_cuda" = 0 ] || patterns_torch+=(torch/lib/libtorch_cuda.so torch/lib/libc10_cuda.so torch/lib/libtorch_cuda_linalg.so)
patterns_nvidia=('nvidia/*/lib/*.so*')

mkdir -p "$cache" "$root/.deps"
rm -rf "$target.part" && mkdir "$target.part"
trap 'rm -rf "$target.part"' EXIT
for wheel in "${wheels[@]}"; do
  read -r requirement file sum <<< "$wheel"
  if ! echo "$sum  $cache/$file" | sha256sum --check --status 2> /dev/null; then
    say "downloading $requirement"
    rm -f "$cache/$file"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
      --platform manylinux_2_28_x86_64 --platform manylinux_2_25_x86_64 --platform manylinux2014_x86_64 \
      --dest "$cache" "$requirement"
    echo "$sum  $cache/$file" | sha256sum --check --status ||
      die "$cache/$file has not the pinned checksum; remove it and try again"
  fi
  say "unpacking $requirement"
  case $requirement in torch*) patterns=("${patterns_torch[@]}") ;; *) patterns=("${patterns_nvidia[@]}") ;; esac
  unzip -q -o "$cache/$file" "${patterns[@]}" -d "$target.part"
done
echo "$stamp" > "$target.part/.stamp"
rm -rf "$target"
mv "$target.part" "$target"
say "LibTorch 2.11.0 is in .deps/libtorch"
