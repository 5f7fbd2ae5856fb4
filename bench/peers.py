#!/usr/bin/env python3
"""The reference works: ours beside the libraries that users would pick instead, in turn in one run.

    peers.py [--threads 1] [--device cpu] [--runs 15] [--peers nflows,zuko] [--json FILE] [WORK ...]

Each library is timed beside our flow in the library's own architecture: a training step, log_prob of 4096 rows, 4096
samples. A turn is two runs of ours, then two of each peer, of which the second counts: a program that has just been
given the processor finds its caches cold (what takes longer than 0.2 s is run once a turn). With one thread a time is
CPU time, which a busy machine disturbs least; with more, or on a GPU, wall time. Prints tables in Markdown; what it is
doing goes to standard error.

It needs the standard library only: ours is build/bin/works_bench, the peers are torch_peers.py and jax_peers.py beside
this file, each run by the Python of its environment (bench/peers_setup.sh).
"""
import argparse
import json
import os
import platform
import select
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
with open(os.path.join(HERE, "works.json")) as file:
    WORKS = json.load(file)
# For each kind of flow, our architecture (works.h) and the libraries that build the same.
GROUPS = {
    "nsf": {"nflows": ["nflows", "normflows"], "zuko": ["zuko"], "glasflow": ["glasflow"], "flowjax": ["flowjax"]},
    "maf": {"nflows": ["nflows"], "zuko": ["zuko"], "flowjax": ["flowjax"]},
    "realnvp": {"nflows": ["nflows"], "FrEIA": ["FrEIA"], "flowjax": ["flowjax"]},
}
ONLY = {"glasflow": ["nsfc_power"]}  # elsewhere it is nflows once more
OPERATIONS = {"step": "training step", "log_prob": "log_prob of 4096 rows", "sample": "4096 samples"}
SLOW, FEW = 1.0, 5  # what takes longer than so many seconds is run so many times
QUICK = 0.2  # what takes less wants warm caches


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Failure(Exception):
    pass


class Program:
    """A program that answers requests (works_bench --serve, worker.py), started when it is first asked."""

    def __init__(self, command, patience):
        self.command, self.patience, self.process = command, patience, None

    def ask(self, work, name, what, runs):
        if self.process is None:
            environment = dict(os.environ, PYTHONUNBUFFERED="1")
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL, env=environment)
        try:
            self.process.stdin.write(f"{work} {name} {what} {runs}\n".encode())
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], self.patience)[0]:
                raise Failure(f"no answer in {self.patience} s")
            line = self.process.stdout.readline()
        except (OSError, Failure) as error:
            self.stop()
            raise Failure(str(error))
        if not line:
            self.stop()
            raise Failure("ended without an answer")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(answer["error"])
        return answer

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Contestant:
    """One library at one work, or ours in its architecture, and the times of one operation."""

    def __init__(self, program, work, name, clock):
        self.program, self.work, self.name, self.clock = program, work, name, clock
        self.parameters, self.error = None, None

    def begin(self, what):
        self.what, self.times, self.peak = what, [], 0
        self.turn(1)  # compiles, and is not counted
        if self.times and self.last_wall < 60e3:
            self.turn(1)
        self.seconds = self.times[-1] / 1e3 if self.times else 0
        self.times = []

    def turn(self, runs=None):
        runs = runs or (2 if self.seconds < QUICK else 1)
        if self.error:
            return
        try:
            answer = self.program.ask(self.work, self.name, self.what, runs)
        except Failure as failure:
            self.error = str(failure)
            say(f"{self.work} {self.name} {self.what}: {self.error}")
            return
        self.parameters, self.last_wall = answer["parameters"], answer["times"][-1][1]
        self.peak = max(self.peak, answer["peak"])
        self.times.append(answer["times"][-1][self.clock])

    def result(self):
        if self.error or not self.times:
            return None
        return {"median": statistics.median(self.times), "best": min(self.times), "runs": len(self.times),
                "peak": self.peak}


def compare(contestants, what, runs):
    """The result of each, in turns."""
    for contestant in contestants:
        contestant.begin(what)
    few = any(contestant.seconds > SLOW for contestant in contestants)
    for _ in range(min(FEW, runs) if few else runs):
        for contestant in contestants:
            contestant.turn()
    results = [contestant.result() for contestant in contestants]
    for contestant in contestants:  # one operation's failure is not the next one's
        contestant.error = None
    return results


def milliseconds(value):
    return f"{value:.{1 if value < 100 else 0}f}"


def cell(ours, theirs, on_gpu):
    """Ratio of the medians (of the bests): medians, and on a GPU peaks of memory."""
    if not ours or not theirs:
        return " / ".join(milliseconds(one["median"]) if one else "failed" for one in (ours, theirs))
    text = (f"**{theirs['median'] / ours['median']:.2f}** ({theirs['best'] / ours['best']:.2f}): "
            f"{milliseconds(ours['median'])} / {milliseconds(theirs['median'])}")
    if on_gpu:
        text += f", {ours['peak'] / 2**20:.0f} / {theirs['peak'] / 2**20:.0f} MiB"
    return text


def machine(arguments):
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as info:
            model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), model)
    text = f"{model}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} when begun, {arguments.threads} "
    text += "thread, CPU time" if arguments.threads == 1 else "threads, wall time"
    if arguments.device != "cpu":
        smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
                             capture_output=True, text=True)
        text = f"{smi.stdout.strip() or arguments.device}, wall time; host: {model}"
    return text


def peers_table(arguments, programs, clock, record):
    """Prints the table, and gives what failed, unless it is torch.compile's failure."""
    failures = []
    on_gpu = arguments.device != "cpu"
    print("| work | beside | parameters, ours / theirs | " + " | ".join(OPERATIONS.values()) + " |")
    print("| --- " * (3 + len(OPERATIONS)) + "|", flush=True)
    for work in arguments.works:
        for like, peers in GROUPS[WORKS[work]["flow"]].items():
            wanted = [peer for peer in arguments.peers or peers
                      if peer.partition("+")[0] in peers and work in ONLY.get(peer, [work])]
            if not wanted:
                continue
            if time.monotonic() > arguments.until:
                say(f"no time is left for {work} beside {', '.join(wanted)}")
                continue
            ours = Contestant(programs["ours"], work, like, clock)
            theirs = [Contestant(programs["jax" if peer == "flowjax" else "torch"], work, peer, clock)
                      for peer in wanted]
            results = {}
            for what in OPERATIONS:
                say(f"{work} like {like}: {what} of ours, {', '.join(wanted)}")
                results[what] = compare([ours, *theirs], what, arguments.runs)
            for i, peer in enumerate(theirs):
                cells = [cell(results[what][0], results[what][i + 1], on_gpu) for what in OPERATIONS]
                counts = f"{ours.parameters or '-'} / {peer.parameters or '-'}"
                print(" | ".join([f"| {work}", peer.name, counts, *cells]) + " |", flush=True)
                sound = all(results[what][0] and (results[what][i + 1] or "+" in peer.name) for what in OPERATIONS)
                failures += [] if sound else [f"{work} {peer.name}"]
                record.append({"work": work, "peer": peer.name, "parameters": [ours.parameters, peer.parameters],
                               **{what: [results[what][0], results[what][i + 1]] for what in OPERATIONS}})
    return failures


def products_table(arguments, programs, clock, record):
    print("| work | architecture | parameters | bare products, ms (GFLOP/s) | step, ms | step / products |")
    print("| --- " * 6 + "|", flush=True)
    for work in arguments.works:
        for like in ["plain", *GROUPS[WORKS[work]["flow"]]]:
            if work not in ONLY.get(like, [work]):
                continue
            say(f"{work} like {like}: step and bare products")
            steps, products = [], []
            try:
                for _ in range(arguments.runs):
                    answer = programs["ours"].ask(work, like, "step", 4)
                    steps += [times[clock] for times in answer["times"]]
                    products = programs["ours"].ask(work, like, "products", 2)
            except Failure as failure:
                say(f"{work} like {like}: {failure}")
                continue
            bare = products["times"][-1][clock]
            print(f"| {work} | {like} | {answer['parameters']} | {bare:.2f} ({products['operations'] / bare / 1e6:.0f}) "
                  f"| {min(steps):.2f} | {min(steps) / bare:.2f} |", flush=True)
            record.append({"work": work, "like": like, "products": bare, "step": min(steps)})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", metavar="WORK", help=", ".join(WORKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--runs", type=int, default=15, help=f"of each; {FEW} where one takes longer than {SLOW} s")
    parser.add_argument("--peers", type=lambda text: text.split(","), help="only these; PEER+compile is compiled; none: our steps beside their products only")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/bin/works_bench"))
    parser.add_argument("--torch-python", default=os.path.join(ROOT, ".deps/peers/bin/python"))
    parser.add_argument("--jax-python", default=os.path.join(ROOT, ".deps/peers-jax/bin/python"))
    parser.add_argument("--minutes", type=float, default=1e3, help="no comparison is begun after this long")
    parser.add_argument("--patience", type=float, default=600, help="seconds to wait for one answer")
    parser.add_argument("--json", help="file for all figures")
    arguments = parser.parse_args()
    arguments.works = arguments.works or list(WORKS)
    for work in arguments.works:
        if work not in WORKS:
            parser.error(f"unknown work {work}; there are {', '.join(WORKS)}")
    arguments.until = time.monotonic() + 60 * arguments.minutes
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    place = ["--threads", str(arguments.threads)]
    device = ["--device", arguments.device]
    programs = {
        "ours": Program([arguments.program, "--serve", *place, *device], arguments.patience),
        "torch": Program([arguments.torch_python, f"{HERE}/torch_peers.py", *place, *device], arguments.patience),
        "jax": Program([arguments.jax_python, f"{HERE}/jax_peers.py", *place], arguments.patience),
    }
    clock = 0 if arguments.threads == 1 and arguments.device == "cpu" else 1
    record = {"machine": machine(arguments), "peers": [], "products": []}
    if clock == 1 and os.getloadavg()[0] > 0.5:
        say("the machine is busy: wall times will mean little, those of several threads nothing")
    print(f"{time.strftime('%Y-%m-%d')}: {record['machine']}. Each cell: ratio of the medians, above 1 ours is faster (of "
          "the bests): medians, ours / theirs, ms.\n")
    try:
        failures = peers_table(arguments, programs, clock, record["peers"])
        if arguments.device == "cpu":
            print("\nOur training step beside its own bare matrix products, best of each:\n")
            products_table(arguments, programs, clock, record["products"])
    finally:
        for program in programs.values():
            program.stop()
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(record, file, indent=1)
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")


if __name__ == "__main__":
    main()
