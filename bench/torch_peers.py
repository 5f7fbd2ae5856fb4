"""The reference works in nflows, normflows, zuko, glasflow and FrEIA, for bench/peers.py.

    torch_peers.py [--threads 1] [--device cpu]

The sizes are those of works.json; otherwise each library's flow is what its own documentation builds. `PEER+compile`
has log_prob and sampling compiled by torch.compile.
"""
import argparse
import math
import warnings

import torch

from worker import ROWS, serve

warnings.filterwarnings("ignore")


def nflows(sizes):
    from nflows import distributions, flows, transforms, utils
    from nflows.nn import nets

    features, width = sizes["features"], sizes["width"]

    def residual(inputs, outputs):
        return nets.ResidualNet(inputs, outputs, hidden_features=width, num_blocks=2)

    steps = []
    for i in range(sizes["layers"]):
        mask = utils.create_alternating_binary_mask(features, even=i % 2 == 0)
        if sizes["flow"] == "nsf":
            steps += [
                transforms.RandomPermutation(features),
                transforms.LULinear(features, identity_init=True),
                transforms.PiecewiseRationalQuadraticCouplingTransform(
                    mask, residual, num_bins=sizes["bins"], tails="linear", tail_bound=3.0,
                    apply_unconditional_transform=True),
            ]
        elif sizes["flow"] == "maf":
            steps += [
                transforms.RandomPermutation(features),
                transforms.MaskedAffineAutoregressiveTransform(features, hidden_features=width, num_blocks=2),
            ]
        else:
            steps.append(transforms.AffineCouplingTransform(mask, residual))
    flow = flows.Flow(transforms.CompositeTransform(steps), distributions.StandardNormal([features]))
    return flow, flow.log_prob, flow.sample


def normflows(sizes):
    import normflows as library

    steps = []
    for i in range(sizes["layers"]):
        steps += [
            library.flows.CoupledRationalQuadraticSpline(
                sizes["features"], 2, sizes["width"], num_bins=sizes["bins"], tail_bound=3.0, reverse_mask=i % 2 == 1),
            library.flows.LULinearPermute(sizes["features"]),
        ]
    base = library.distributions.DiagGaussian(sizes["features"], trainable=False)
    flow = library.NormalizingFlow(base, steps)
    return flow, flow.log_prob, flow.sample


def zuko(sizes):
    import zuko as library

    options = dict(transforms=sizes["layers"], hidden_features=(sizes["width"],) * 2, randperm=True)
    if sizes["flow"] == "nsf":
        flow = library.flows.NSF(sizes["features"], bins=sizes["bins"], passes=2, **options)
    else:
        flow = library.flows.MAF(sizes["features"], **options)
    return flow, lambda x: flow().log_prob(x), lambda n: flow().sample((n,))


def glasflow(sizes):
    from glasflow import CouplingNSF

    flow = CouplingNSF(sizes["features"], sizes["layers"], n_neurons=sizes["width"], n_blocks_per_transform=2,
                       num_bins=sizes["bins"], tail_bound=3.0, linear_transform="permutation")
    return flow, flow.log_prob, flow.sample


def FrEIA(sizes):
    import FrEIA.framework
    import FrEIA.modules

    features, width = sizes["features"], sizes["width"]

    def two_hidden_layers(inputs, outputs):
        return torch.nn.Sequential(torch.nn.Linear(inputs, width), torch.nn.ReLU(), torch.nn.Linear(width, width),
                                   torch.nn.ReLU(), torch.nn.Linear(width, outputs))

    flow = FrEIA.framework.SequenceINN(features)
    for _ in range(sizes["layers"]):
        flow.append(FrEIA.modules.AllInOneBlock, subnet_constructor=two_hidden_layers)

    def log_prob(x):
        z, log_det = flow(x)
        return log_det - 0.5 * z.square().sum(-1) - 0.5 * features * math.log(2 * math.pi)

    def sample(n):
        latent = torch.randn(n, features, device=next(flow.parameters()).device)
        return flow(latent, rev=True)[0]

    return flow, log_prob, sample


MAKERS = {"nflows": nflows, "normflows": normflows, "zuko": zuko, "glasflow": glasflow, "FrEIA": FrEIA}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    def make(sizes, peer):
        torch.manual_seed(0)
        name, _, compiled = peer.partition("+")
        flow, log_prob, sample = MAKERS[name](sizes)
        flow.to(device)
        if compiled:
            torch._dynamo.reset()
            log_prob, sample = torch.compile(log_prob), torch.compile(sample)
        parameters = [p for p in flow.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(parameters, 1e-4)
        x = torch.randn(sizes["batch"], sizes["features"], device=device)
        rows = torch.randn(ROWS, sizes["features"], device=device)

        def step():
            flow.train()
            optimizer.zero_grad()
            (-log_prob(x).mean()).backward()
            optimizer.step()
            synchronize()

        def evaluate(call, argument):
            flow.eval()
            with torch.no_grad():
                call(argument)
            synchronize()

        return {"parameters": sum(p.numel() for p in parameters), "step": step,
                "log_prob": lambda: evaluate(log_prob, rows), "sample": lambda: evaluate(sample, ROWS)}

    if device.type == "cuda":
        serve(make, torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated)
    else:
        serve(make)


if __name__ == "__main__":
    main()
