# The two commands: `make demo` (from nothing to a trained flow and a picture) and `make test`.
# `make` alone sets up and builds; programs are in build/bin.
.PHONY: all setup build test demo accept bench bench-quick bench-programs peers cuda asan format docs clean
JOBS ?= 2

all: build

setup:
	@scripts/setup.sh

build: setup
	@cmake --preset cpu > build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log
	@cmake --build --preset cpu --parallel $(JOBS)

test: build
	ctest --preset cpu --parallel $(JOBS)
	@awk '/: Skipped$$/ { getline; n[$$0]++ } END { for (why in n) print "skipped: " n[why] " tests: " why }' build/Testing/Temporary/LastTest.log

demo: setup  ## builds the program alone, without the tests
	@cmake --preset cpu > build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log
	@cmake --build --preset cpu --parallel $(JOBS) --target diffeo_program
	@scripts/demo.sh

accept: build  ## the longer experiments
	ctest --test-dir build -C long -L acceptance --verbose

bench: bench-programs peers  ## ours and theirs in one run: the tables of docs/performance.md, in half an hour
	python3 bench/peers.py --threads 1
	python3 bench/peers.py --threads 2

bench-quick: setup  ## our training steps against their own matrix products, in half a minute
	@cmake --preset cpu -DDIFFEO_BENCH=ON > build.log 2>&1 || { cat build.log; rm -f build.log; exit 1; }; rm -f build.log
	@cmake --build --preset cpu --parallel $(JOBS) --target works_bench > build/bench.log || { cat build/bench.log; exit 1; }
	@build/bin/works_bench --quick

bench-programs: setup
	cmake --preset cpu -DDIFFEO_BENCH=ON > /dev/null
	cmake --build --preset cpu --parallel $(JOBS) --target bench_programs

peers:  ## the other libraries, each kind in an environment of its own
	@bench/peers_setup.sh

cuda: setup  ## needs nvcc, no GPU
	cmake --preset cuda > /dev/null
	cmake --build --preset cuda --parallel $(JOBS) --target diffeo

asan: setup  ## everything once under the address and undefined-behaviour sanitizers
	cmake --preset asan > /dev/null
	cmake --build --preset asan --parallel $(JOBS)
	ctest --preset asan --parallel $(JOBS)

format:
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

docs: build  ## docs/layers.md from the registry
	build/bin/diffeo inspect --layers --markdown > docs/layers.md

clean:
	rm -rf build
