"""The other end of bench/peers.py: reads lines `WORK PEER WHAT RUNS`, answers each by a line of JSON.

A program of peers calls `serve(make)`. `make(sizes, peer)` builds a flow of the sizes in works.json and gives
`{"parameters": count, "step": call, "log_prob": call, "sample": call}`; a call is over when its result is there. The
flow asked for last is kept. Times are [CPU, wall] milliseconds of each run.
"""
import json
import os
import sys
import time

ROWS = 4096  # of log_prob, and samples

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "works.json")) as file:
    WORKS = json.load(file)


def timed(call):
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return [(time.process_time() - cpu) * 1e3, (time.perf_counter() - wall) * 1e3]


def serve(make, reset_peak=lambda: None, peak=lambda: 0):
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever libraries print is no answer
    current, flow = None, None
    for line in sys.stdin:
        try:
            work, peer, what, runs = line.split()
            if current != (work, peer):
                flow, current = None, None
                flow = make(WORKS[work], peer)
                current = work, peer
            reset_peak()
            times = [timed(flow[what]) for _ in range(int(runs))]
            answer = {"parameters": flow["parameters"], "times": times, "peak": peak()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps(answer), file=answers, flush=True)
