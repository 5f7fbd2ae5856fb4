#!/usr/bin/env bash
# What starting the program costs, in user CPU seconds (median of several runs, taken in turn):
#   diffeo --help                    against an empty program that links LibTorch
#   diffeo evaluate of 1000 rows     against python -c "import torch"
# usage: bench/startup.sh [ROUNDS]; PYTHON names a Python that has torch (the second comparison is skipped without).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
rounds=${1:-7}
diffeo=${DIFFEO:-$root/build/bin/diffeo}
libraries=${LIBTORCH:-$root/.deps/libtorch/torch}/lib
python=${PYTHON:-$root/.deps/peers/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

echo 'int main() {}' > empty.cpp
c++ -o empty empty.cpp -Wl,--no-as-needed -L"$libraries" -ltorch_cpu -lc10 -Wl,-rpath,"$libraries" \
  -Wl,--unresolved-symbols=ignore-in-shared-libs
"$diffeo" toy moons -n 1250 moons.h5 > toy.log
"$diffeo" train moons.h5 --flow nsf --steps 3 --threads 1 -o model.h5 > train.log

# Prints the user CPU seconds of a command.
cpu() { (TIMEFORMAT=%U; time "$@" > run.log 2>&1) 2>&1; }
median() { sort -n | awk '{a[NR] = $1} END {print (NR % 2) ? a[(NR + 1) / 2] : (a[NR / 2] + a[NR / 2 + 1]) / 2}'; }

have_python=no
"$python" -c 'import torch' 2> /dev/null && have_python=yes
for ((i = 0; i < rounds; ++i)); do
  cpu ./empty >> empty.txt
  cpu "$diffeo" --help >> help.txt
  cpu "$diffeo" evaluate model.h5 moons.h5 --x /train/x --threads 1 >> evaluate.txt
  [ $have_python = no ] || cpu "$python" -c 'import torch' >> python.txt
done

# Noise of a hundredth or two is the clock's.
failures=0
compare() {  # NAME VALUE THRESHOLD
  local verdict
  verdict=$(awk -v a="$2" -v b="$3" 'BEGIN {print (a <= b + 0.02) ? "PASS" : "FAIL"}')
  echo "accept $1 $2 $3 $verdict"
  [ "$verdict" = PASS ] || failures=1
}
compare startup-help "$(median < help.txt)" "$(median < empty.txt)"
if [ $have_python = yes ]; then compare startup-evaluate "$(median < evaluate.txt)" "$(median < python.txt)"
else echo "startup-evaluate skipped: $python has no torch"; fi
exit $failures
