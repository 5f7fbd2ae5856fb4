#!/usr/bin/env python3
"""Known answers from other libraries: the same weights in, their values and log-dets out, in float64.

Prints JSON for values.json, which holds numbers only. Run it in the peers' environment (see bench/README.md):
    .deps/peers/bin/python tests/golden/make_values.py > tests/golden/values.json
Each case has our spec, our parameters under our names (made from the peer's weights), the inputs, and the peer's answer.
"""
import json
import math
from importlib.metadata import version

import torch
import torch.nn.functional as F
import zuko
from nflows import transforms, utils
from nflows.nn import nets
from normflows.utils import splines as normflows_splines

torch.set_default_dtype(torch.float64)
torch.manual_seed(20260101)
cases = []


def numbers(tensor):
    return tensor.detach().double().tolist()


def add(name, program, spec, state, x, y, log_det, context=None, inverse=None):
    case = {'name': name, 'program': f'{program} {version(program)}', 'spec': spec,
            'state': {key: numbers(value) for key, value in state.items()}, 'x': numbers(x), 'y': numbers(y), 'log_det': numbers(log_det)}
    if context is not None:
        case['context'] = numbers(context)
    if inverse is not None:
        case['inverse'] = {'y': numbers(inverse[0]), 'x': numbers(inverse[1]), 'log_det': numbers(inverse[2])}
    cases.append(case)


def shake(module, scale=0.5):
    with torch.no_grad():
        for p in module.parameters():
            p.add_(scale * torch.randn_like(p))


def residual_state(net, prefix, spline_bins=0, parameters=0, hidden=1):
    """Weights of nflows' residual network under our names; nflows divides spline sizes by sqrt(hidden), we do not."""
    weight, bias = net.final_layer.weight.clone(), net.final_layer.bias.clone()
    if spline_bins:
        factor = torch.ones(parameters)
        factor[:2 * spline_bins] = 1 / math.sqrt(hidden)
        factor = factor.repeat(len(bias) // parameters)
        weight, bias = weight * factor[:, None], bias * factor
    state = {'initial.weight': net.initial_layer.weight, 'initial.bias': net.initial_layer.bias, 'last.weight': weight, 'last.bias': bias}
    for i, block in enumerate(net.blocks):
        for j, ours in enumerate(('first', 'second')):
            state[f'{i}.{ours}.weight'] = block.linear_layers[j].weight
            state[f'{i}.{ours}.bias'] = block.linear_layers[j].bias
        if hasattr(block, 'context_layer'):
            state[f'{i}.gate.weight'] = block.context_layer.weight
            state[f'{i}.gate.bias'] = block.context_layer.bias
    return {prefix + key: value for key, value in state.items()}


# ---- nflows: rational-quadratic coupling with linear tails, unconditional part, with and without context ----
D, H, K, B = 5, 16, 6, 3.0
for context in (0, 2):
    layer = transforms.PiecewiseRationalQuadraticCouplingTransform(
        mask=utils.create_alternating_binary_mask(D, even=True),
        transform_net_create_fn=lambda i, o: nets.ResidualNet(i, o, hidden_features=H, num_blocks=2, context_features=context or None),
        num_bins=K, tails='linear', tail_bound=B, apply_unconditional_transform=True).eval()
    shake(layer)
    unconditional = layer.unconditional_transform
    kept = torch.cat([unconditional.unnormalized_widths, unconditional.unnormalized_heights, unconditional.unnormalized_derivatives], -1)
    x = 2.5 * torch.randn(7, D)
    c = torch.randn(7, context) if context else None
    y, log_det = layer(x, c)
    back = 2.5 * torch.randn(7, D)
    inverse = (back, *layer.inverse(back, c))
    net = {'type': 'residual', 'width': H, 'depth': 2}
    spec = {'type': 'coupling', 'features': D, 'context': context, 'mask': 'alternating', 'flip': True, 'net': net,
            'map': {'type': 'rq_spline', 'bins': K, 'bound': B}, 'kept_map': {'type': 'rq_spline', 'bins': K, 'bound': B}}
    state = residual_state(layer.transform_net, 'net.', K, 3 * K - 1, H)
    state['kept_parameters'] = kept
    add('rq_coupling' + ('_context' if context else ''), 'nflows', spec, state, x, y, log_det, c, inverse)

# ---- nflows: masked affine autoregressive, residual MADE; hidden units sorted by degree as ours are ----
D, H = 5, 14
layer = transforms.MaskedAffineAutoregressiveTransform(D, hidden_features=H, num_blocks=2).eval()
shake(layer)
made = layer.autoregressive_net
order = torch.argsort(made.initial_layer.degrees, stable=True)


def masked(linear):
    return linear.weight * linear.mask


state = {'net.initial.weight': masked(made.initial_layer)[order], 'net.initial.bias': made.initial_layer.bias[order],
         'net.last.weight': masked(made.final_layer)[:, order], 'net.last.bias': made.final_layer.bias}
for i, block in enumerate(made.blocks):
    for j, ours in enumerate(('first', 'second')):
        state[f'net.{i}.{ours}.weight'] = masked(block.linear_layers[j])[order][:, order]
        state[f'net.{i}.{ours}.bias'] = block.linear_layers[j].bias[order]
x = torch.randn(7, D)
y, log_det = layer(x)
back = torch.randn(7, D)
add('maf', 'nflows', {'type': 'autoregressive', 'features': D, 'map': {'type': 'affine', 'scale': 'softplus'},
                      'net': {'type': 'residual', 'width': H, 'depth': 2}}, state, x, y, log_det, None, (back, *layer.inverse(back)))

# ---- nflows: LU linear ----
layer = transforms.LULinear(5, identity_init=False)
shake(layer)
lower, upper = layer._create_lower_upper()
x = torch.randn(7, 5)
y, log_det = layer(x)
back = torch.randn(7, 5)
add('lu', 'nflows', {'type': 'lu_linear', 'features': 5},
    {'lu': torch.tril(lower, -1) + torch.triu(upper, 1) + torch.diag(layer.unconstrained_upper_diag), 'bias': layer.bias},
    x, y, log_det, None, (back, *layer.inverse(back)))

# ---- nflows: ActNorm, initialised by a batch, then another batch ----
layer = transforms.ActNorm(4).train()
first = 3 * torch.randn(50, 4) + torch.arange(4.0)
layer(first)
layer.eval()
x = torch.randn(7, 4)
y, log_det = layer(x)
add('actnorm', 'nflows', {'type': 'actnorm', 'features': 4}, {'log_scale': layer.log_scale, 'shift': layer.shift}, x, y, log_det)
cases[-1]['first_batch'] = numbers(first)

# ---- normflows: circular spline ----
K, D = 6, 3
raw = 2 * torch.randn(D, 3 * K)
x = math.pi * (2 * torch.rand(9, D) - 1)
w, h, d = (raw[:, i * K:(i + 1) * K].expand(9, D, K).contiguous() for i in range(3))
y, ladj = normflows_splines.unconstrained_rational_quadratic_spline(x, w, h, d, tails='circular', tail_bound=math.pi)
bx, bladj = normflows_splines.unconstrained_rational_quadratic_spline(x, w, h, d, inverse=True, tails='circular', tail_bound=math.pi)
add('circular_spline', 'normflows', {'type': 'elementwise', 'features': D, 'map': {'type': 'rq_spline', 'bins': K, 'tails': 'circular'}},
    {'parameters': raw}, x, y, ladj.sum(-1), None, (x, bx, bladj.sum(-1)))

# ---- zuko: rational-quadratic spline with its knots, and its bounded affine map ----
K, D, B, least = 8, 4, 5.0, 1e-3
w, h, d = 2 * torch.randn(D, K), 2 * torch.randn(D, K), 2 * torch.randn(D, K - 1)
map_ = zuko.transforms.MonotonicRQSTransform(w, h, d, bound=B)
widths, heights = map_.horizontal.diff(dim=-1) / (2 * B), map_.vertical.diff(dim=-1) / (2 * B)
slopes = map_.derivatives[:, 1:-1]
raw = torch.cat([((widths - least) / (1 - K * least)).log(), ((heights - least) / (1 - K * least)).log(), torch.expm1(slopes - least).log()], -1)
x = 4 * torch.randn(9, D)
y, ladj = map_.call_and_ladj(x)
back = map_.inv(x)
add('rq_spline', 'zuko', {'type': 'elementwise', 'features': D, 'map': {'type': 'rq_spline', 'bins': K, 'bound': B}}, {'parameters': raw},
    x, y, ladj.sum(-1), None, (x, back, -map_.call_and_ladj(back)[1].sum(-1)))

shift, scale = torch.randn(D), 4 * torch.randn(D)
map_ = zuko.transforms.MonotonicAffineTransform(shift, scale)
y, ladj = map_.call_and_ladj(x)
add('affine_bounded', 'zuko', {'type': 'elementwise', 'features': D, 'map': {'type': 'affine', 'cap': -math.log(1e-3)}},
    {'parameters': torch.stack([scale, shift], -1)}, x, y, ladj.expand_as(x).sum(-1))

print(json.dumps({'cases': cases}, indent=1))
