#include "diffeo/layers/nets/masked_linear.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "diffeo/layers/base/cpu_kernels.h"
#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/base/parallel.h"
#include "diffeo/layers/nets/masked_linear_cpu.h"

namespace diffeo {
namespace masked_linear {

DIFFEO_CPU_KERNELS(ProductKernels)

}  // namespace masked_linear

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using namespace masked_linear;
using Seen = std::vector<int64_t>;

constexpr int64_t row_chunk = 192;   // rows that lie in the second-level cache beside the panels
constexpr int64_t row_tile = 12;     // rows that the kernels take at once
constexpr int64_t step_chunk = 256;  // rows of a panel in the first-level cache, where rows are summed over

/// A weight (U, I) in pointers, of which unit u sees the first seen[u] inputs.
template <class T>
struct Weight {
  Weight(const Tensor& tensor, const Seen& given)
      : units(tensor.size(0)),
        inputs(tensor.size(1)),
        kept(tensor.contiguous()),
        data(kept.template const_data_ptr<T>()),
        seen(given) {}

  /// The first unit that sees an input beyond `input`.
  int64_t first_seeing(int64_t input) const {
    return std::find_if(seen.begin(), seen.end(), [=](int64_t count) { return count > input; }) - seen.begin();
  }

  int64_t units, inputs;
  Tensor kept;
  const T* data;
  const Seen& seen;
};

/// f(first, count) for chunks of the rows, as many for each thread.
template <class F>
void each_chunk(int64_t rows, const F& f) {
  const auto divided_up = [](int64_t number, int64_t by) { return (number + by - 1) / by; };
  const int64_t share = divided_up(std::max<int64_t>(rows, 1), at::get_num_threads());
  const int64_t chunk = std::min(row_chunk, divided_up(share, row_tile) * row_tile);
  parallel_for(0, divided_up(rows, chunk), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * chunk; row < std::min(end * chunk, rows); row += chunk)
      f(row, std::min(chunk, rows - row));
  });
}

/// f(panel) for all panels, on all threads. Their work grows or shrinks from the first to the last: a long and a short
/// one take turns, for equal shares.
template <class F>
void each_panel(int64_t panels, const F& f) {
  parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i % 2 == 0 ? i / 2 : panels - 1 - i / 2);
  });
}

/// x (R, I) W^T + bias.
template <class T>
Tensor product(const Tensor& x, const Weight<T>& weight, const Tensor& bias) {
  const auto& kernels = cpu_kernels<T>();
  const int64_t rows = x.size(0), units = weight.units, width = kernels.width, panels = (units + width - 1) / width;
  auto out = at::empty({rows, units}, x.options());
  const Tensor starts = at::zeros({panels * width}, x.options());
  starts.narrow(0, 0, units).copy_(bias);
  std::vector<int64_t> steps(panels), at(panels + 1, 0);
  for (int64_t j = 0; j < panels; ++j) {
    const auto end = std::min((j + 1) * width, units);
    steps[j] = *std::max_element(weight.seen.begin() + j * width, weight.seen.begin() + end);
    at[j + 1] = at[j] + steps[j] * width;
  }
  const Tensor packed = at::empty({at[panels]}, x.options());
  T* const panel = packed.template mutable_data_ptr<T>();
  each_panel(panels, [&](int64_t j) {
    const auto first = j * width, count = std::min(width, units - first);
    kernels.pack_transposed(weight.data + first * weight.inputs, weight.inputs, steps[j], count, panel + at[j]);
    for (int64_t u = 0; u < count; ++u)
      for (int64_t k = weight.seen[first + u]; k < steps[j]; ++k) panel[at[j] + k * width + u] = 0;
  });
  const T *from = x.const_data_ptr<T>(), *start = starts.const_data_ptr<T>();
  T* to = out.template mutable_data_ptr<T>();
  each_chunk(rows, [&](int64_t row, int64_t count) {
    for (int64_t j = 0; j < panels; ++j)
      kernels.multiply({.a = from + row * weight.inputs,
                        .a_row = weight.inputs,
                        .a_step = 1,
                        .panel = panel + at[j],
                        .steps = steps[j],
                        .start = start + j * width,
                        .add = false,
                        .to = to + row * units + j * width,
                        .to_row = units,
                        .rows = count,
                        .columns = std::min(width, units - j * width)});
  });
  return out;
}

/// by_out (R, U) W, (R, I).
template <class T>
Tensor product_by_x(const Tensor& by_out, const Weight<T>& weight) {
  const auto& kernels = cpu_kernels<T>();
  const int64_t rows = by_out.size(0), units = weight.units, inputs = weight.inputs, width = kernels.width,
                panels = (inputs + width - 1) / width;
  auto by_x = at::empty({rows, inputs}, by_out.options());
  std::vector<int64_t> first(panels), at(panels + 1, 0);
  for (int64_t j = 0; j < panels; ++j) {
    first[j] = weight.first_seeing(j * width);
    at[j + 1] = at[j] + (units - first[j]) * width;
  }
  const Tensor packed = at::empty({at[panels]}, by_out.options());
  T* const panel = packed.template mutable_data_ptr<T>();
  each_panel(panels, [&](int64_t j) {
    const auto end = std::min((j + 1) * width, inputs);
    kernels.pack(weight.data + first[j] * inputs + j * width, inputs, units - first[j], end - j * width, panel + at[j]);
    for (int64_t u = first[j]; u < units; ++u) {
      T* const row = panel + at[j] + (u - first[j]) * width;
      if (weight.seen[u] < end) std::fill(row + std::max<int64_t>(weight.seen[u] - j * width, 0), row + width, T(0));
    }
  });
  const T* from = by_out.const_data_ptr<T>();
  T* to = by_x.template mutable_data_ptr<T>();
  each_chunk(rows, [&](int64_t row, int64_t count) {
    for (int64_t j = 0; j < panels; ++j)
      kernels.multiply({.a = from + row * units + first[j],
                        .a_row = units,
                        .a_step = 1,
                        .panel = panel + at[j],
                        .steps = units - first[j],
                        .start = nullptr,
                        .add = false,
                        .to = to + row * inputs + j * width,
                        .to_row = inputs,
                        .rows = count,
                        .columns = std::min(width, inputs - j * width)});
  });
  return by_x;
}

/// by_weight = by_out^T (U, R) x (R, I), with zeros where a unit sees nothing.
template <class T>
void product_by_weight(const Tensor& by_out, const Tensor& x, const Weight<T>& weight, const Tensor& by_weight) {
  const auto& kernels = cpu_kernels<T>();
  const int64_t rows = x.size(0), units = weight.units, inputs = weight.inputs, width = kernels.width,
                panels = (inputs + width - 1) / width;
  const T *from = by_out.const_data_ptr<T>(), *points = x.const_data_ptr<T>();
  T* to = by_weight.template mutable_data_ptr<T>();
  each_panel(panels, [&](int64_t j) {
    // Kept from one panel to the next. Registers of 64 bytes are read from within one line of the cache.
    constexpr size_t line = 64;
    thread_local std::vector<T> memory;
    memory.resize(step_chunk * width + line / sizeof(T));
    T* packed = reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.data()) + line - 1) / line * line);
    const auto first = weight.first_seeing(j * width), columns = std::min(width, inputs - j * width);
    for (int64_t row = 0; row < rows; row += step_chunk) {
      const auto steps = std::min(step_chunk, rows - row);
      kernels.pack(points + row * inputs + j * width, inputs, steps, columns, packed);
      kernels.multiply({.a = from + row * units + first,
                        .a_row = 1,
                        .a_step = units,
                        .panel = packed,
                        .steps = steps,
                        .start = nullptr,
                        .add = row > 0,
                        .to = to + first * inputs + j * width,
                        .to_row = inputs,
                        .rows = units - first,
                        .columns = columns});
    }
  });
  for (int64_t u = 0; u < units; ++u)
    std::fill(to + u * inputs + (rows > 0 ? weight.seen[u] : 0), to + (u + 1) * inputs, T(0));
}

struct MaskedLinearNode : torch::autograd::Function<MaskedLinearNode> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const Tensor& mask, const Seen& seen) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({x, weight, bias, mask});
    ctx->saved_data["seen"] = seen;
    Tensor out;
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "masked_linear",
                               [&] { out = product<scalar_t>(x.contiguous(), Weight<scalar_t>(weight, seen), bias); });
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1];
    if (at::GradMode::is_enabled()) return by_definition(saved, grads);
    const Seen seen = ctx->saved_data["seen"].toIntVector();
    const auto by_out = grads[0].contiguous();
    variable_list by(5);
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "masked_linear_backward", [&] {
      const Weight<scalar_t> w(weight, seen);
      if (ctx->needs_input_grad(0)) by[0] = product_by_x(by_out, w);
      if (ctx->needs_input_grad(1)) product_by_weight(by_out, x.contiguous(), w, by[1] = gradient_for(weight));
    });
    if (ctx->needs_input_grad(2)) at::sum_out(by[2] = gradient_for(saved[2]), by_out, 0);
    return by;
  }

  /// Gradients that can be differentiated themselves.
  static variable_list by_definition(const variable_list& saved, const variable_list& grads) {
    const auto out = at::linear(saved[0], saved[1] * saved[3], saved[2]);
    variable_list wanted, by(5);
    for (size_t i = 0; i < 3; ++i)
      if (saved[i].requires_grad()) wanted.push_back(saved[i]);
    const auto found = torch::autograd::grad({out}, wanted, grads, true, true, true);
    for (size_t i = 0, next = 0; i < 3; ++i)
      if (saved[i].requires_grad()) by[i] = found[next++];
    return by;
  }
};

/// How many of the first inputs each row of a mask lets through, or nothing where a row is of another form.
Seen seen_by(const Tensor& mask) {
  const auto counts = mask.sum(1).to(at::kLong), expected = at::arange(mask.size(1)) < counts.unsqueeze(-1);
  if (!at::equal(expected, mask > 0)) return {};
  return {counts.const_data_ptr<int64_t>(), counts.const_data_ptr<int64_t>() + counts.numel()};
}

}  // namespace

MaskedLinear::MaskedLinear(const std::vector<int64_t>& inputs, const std::vector<int64_t>& units, bool strict)
    : LinearImpl(static_cast<int64_t>(inputs.size()), static_cast<int64_t>(units.size())) {
  const auto in = at::tensor(inputs), out = at::tensor(units).unsqueeze(-1);
  mask_ = register_buffer("mask", (strict ? out > in : out >= in).to(at::kFloat));
  seen_ = seen_by(mask_);
}

Tensor MaskedLinear::forward(const Tensor& x) {
  const bool known = x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  if (seen_.empty() || !known || !x.is_cpu() || x.scalar_type() != weight.scalar_type())
    return at::linear(x, weight * mask_, bias);
  auto sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return MaskedLinearNode::apply(x.reshape({-1, x.size(-1)}), weight, bias, mask_, seen_).view(sizes);
}

}  // namespace diffeo
