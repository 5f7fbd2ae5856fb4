#!/usr/bin/env python3
"""One training step of the reference works: ours beside nflows, normflows and zuko, in turn in one run, on one thread.

    peers.py [--program build/bin/step_bench] [--rounds 5] [WORK ...]

Runs in an environment with torch, nflows, normflows and zuko (see docs/performance.md). Times are CPU time of a step
(forward, backward, Adam) in milliseconds, the best of the rounds; a round takes the mean over a second or so. Ratios
are to the fastest peer of the same architecture: above 1, ours is faster.
"""
import argparse
import json
import os
import subprocess
import time

os.environ["OMP_NUM_THREADS"] = "1"
import torch  # noqa: E402

WORKS = {  # D, layers, hidden, bins, batch
    "nsfc_power": (6, 10, 256, 8, 512),
    "nsfc_mini": (43, 10, 128, 8, 256),
    "nsfc_small": (8, 6, 64, 8, 1024),
}
PEERS_OF = {"nflows": ["nflows", "normflows"], "zuko": ["zuko"]}


def nflows(features, layers, hidden, bins):
    from nflows import distributions, flows, transforms, utils
    from nflows.nn import nets

    steps = []
    for i in range(layers):
        steps += [
            transforms.RandomPermutation(features),
            transforms.LULinear(features, identity_init=True),
            transforms.PiecewiseRationalQuadraticCouplingTransform(
                mask=utils.create_alternating_binary_mask(features, even=i % 2 == 0),
                transform_net_create_fn=lambda n, m: nets.ResidualNet(n, m, hidden_features=hidden, num_blocks=2),
                num_bins=bins, tails="linear", tail_bound=3.0, apply_unconditional_transform=True),
        ]
    flow = flows.Flow(transforms.CompositeTransform(steps), distributions.StandardNormal([features]))
    return flow, flow.log_prob


def normflows(features, layers, hidden, bins):
    import normflows as nf

    steps = []
    for i in range(layers):
        steps += [
            nf.flows.CoupledRationalQuadraticSpline(features, 2, hidden, num_bins=bins, tail_bound=3.0,
                                                    reverse_mask=i % 2 == 1),
            nf.flows.LULinearPermute(features),
        ]
    flow = nf.NormalizingFlow(nf.distributions.DiagGaussian(features, trainable=False), steps)
    return flow, flow.log_prob


def zuko(features, layers, hidden, bins):
    import zuko as library

    flow = library.flows.NSF(features, 0, bins=bins, transforms=layers, passes=2, hidden_features=(hidden, hidden),
                             randperm=True)
    return flow, lambda x: flow().log_prob(x)


class Peer:
    def __init__(self, make, work):
        features, layers, hidden, bins, batch = WORKS[work]
        torch.manual_seed(0)
        flow, self.log_prob = make(features, layers, hidden, bins)
        parameters = [p for p in flow.parameters() if p.requires_grad]
        self.parameters = sum(p.numel() for p in parameters)
        self.optimizer = torch.optim.Adam(parameters, 1e-4)
        self.x = torch.randn(batch, features)

    def step(self):
        self.optimizer.zero_grad()
        (-self.log_prob(self.x).mean()).backward()
        self.optimizer.step()

    def milliseconds(self):
        self.step()
        steps, start = 0, time.process_time()
        while time.process_time() - start < 1:
            self.step()
            steps += 1
        return (time.process_time() - start) / steps * 1e3


def ours(program, work, like):
    out = subprocess.run([program, f"--benchmark_filter=step/{work}/{like}$", "--benchmark_min_time=1",
                          "--benchmark_format=json"], check=True, capture_output=True, text=True)
    result = json.loads(out.stdout)["benchmarks"][0]
    return result["cpu_time"], int(result["parameters"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("works", nargs="*", default=list(WORKS), metavar="WORK")
    parser.add_argument("--program", default="build/bin/step_bench")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| work | architecture | ours, ms (parameters) | peers, ms (parameters) | fastest peer / ours |")
    print("| --- | --- | --- | --- | --- |")
    for work in arguments.works:
        for like, names in PEERS_OF.items():
            peers = {name: Peer(globals()[name], work) for name in names}
            best = {}
            for _ in range(arguments.rounds):
                for name in ["ours", *names]:
                    taken, count = (ours(arguments.program, work, like) if name == "ours"
                                    else (peers[name].milliseconds(), peers[name].parameters))
                    best[name] = min(best.get(name, (taken, count)), (taken, count))
            fastest = min(best[name][0] for name in names)
            row = ", ".join(f"{name} {best[name][0]:.1f} ({best[name][1]})" for name in names)
            print(f"| {work} | {like} | {best['ours'][0]:.1f} ({best['ours'][1]}) | {row} | "
                  f"{fastest / best['ours'][0]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
