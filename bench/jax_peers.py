"""The reference works in flowjax, compiled by XLA, for bench/peers.py.

    jax_peers.py [--threads 1]

One thread means one core: XLA is told so, and the process is kept on the core where it starts. XLA's threads all belong
to the process, so that its CPU time counts them all.
"""
import argparse
import os

from worker import ROWS, serve


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.threads == 1:
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

    import equinox
    import jax
    import jax.numpy as jnp
    import optax
    import paramax
    from flowjax.bijections import RationalQuadraticSpline
    from flowjax.distributions import Normal
    from flowjax.flows import coupling_flow, masked_autoregressive_flow

    def build(sizes):
        options = dict(base_dist=Normal(jnp.zeros(sizes["features"])), flow_layers=sizes["layers"],
                       nn_width=sizes["width"], nn_depth=2, invert=True)
        if sizes["flow"] == "maf":
            return masked_autoregressive_flow(jax.random.key(0), **options)
        if sizes["flow"] == "nsf":
            options["transformer"] = RationalQuadraticSpline(knots=sizes["bins"], interval=3)
        return coupling_flow(jax.random.key(0), **options)

    def make(sizes, peer):
        if peer != "flowjax":
            raise ValueError(f"no library {peer} here")
        # As flowjax's own training loop splits a flow.
        learned, rest = equinox.partition(build(sizes), equinox.is_inexact_array,
                                          is_leaf=lambda leaf: isinstance(leaf, paramax.NonTrainable))
        optimizer = optax.adam(1e-4)
        state = [learned, optimizer.init(learned)]
        x = jax.random.normal(jax.random.key(1), (sizes["batch"], sizes["features"]))
        rows = jax.random.normal(jax.random.key(2), (ROWS, sizes["features"]))

        def flow(learned):
            return paramax.unwrap(equinox.combine(learned, rest))

        @jax.jit
        def update(learned, moments, x):
            gradients = jax.grad(lambda learned: -flow(learned).log_prob(x).mean())(learned)
            updates, moments = optimizer.update(gradients, moments, learned)
            return optax.apply_updates(learned, updates), moments

        log_prob = jax.jit(lambda learned, x: flow(learned).log_prob(x))
        sample = jax.jit(lambda learned, key: flow(learned).sample(key, (ROWS,)))

        def step():
            state[:] = jax.block_until_ready(update(*state, x))

        return {"parameters": sum(leaf.size for leaf in jax.tree_util.tree_leaves(learned)), "step": step,
                "log_prob": lambda: log_prob(state[0], rows).block_until_ready(),
                "sample": lambda: sample(state[0], jax.random.key(3)).block_until_ready()}

    serve(make)


if __name__ == "__main__":
    main()
