#include "diffeo/layers/nets/dense.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "diffeo/layers/base/cpu_kernels.h"
#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/base/parallel.h"
#include "diffeo/layers/nets/activation.h"
#include "diffeo/layers/nets/dense_kernels.h"
#include "diffeo/layers/nets/dense_tensors.h"
#include "diffeo/layers/nets/products.h"

namespace diffeo::dense {

DIFFEO_CPU_KERNELS(CpuKernels)

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using products::Matrix;

/// Columns that one thread works on at least.
constexpr int64_t grain = 256;

template <class T>
void run(const Rectified<T>& pass) {
  const auto& kernels = cpu_kernels<T>();
  parallel_for(0, pass.columns, grain, [&](int64_t begin, int64_t end) { kernels.rectified(pass, begin, end); });
}

/// Whether the factors of a map's products are rounded: not where points or contexts are one, which costs little and
/// would take away their digits.
bool rounds(const Shape& shape, int64_t map) {
  const bool is_gate = shape.gated && map % 3 == 0;
  return shape.bfloat16 && map > 0 && !is_gate;
}

/// A network on rows of memory. Hidden activations of all layers have the same size, a slot each.
template <class T>
class Network {
 public:
  Network(const Shape& shape, const std::vector<Tensor>& parameters, int64_t rows)
      : shape_(shape),
        parameters_(parameters),
        activation_(activation(shape.activation)),
        relu_(shape.activation == "relu"),
        rows_(rows),
        width_(shape.residual || shape.depth > 0 ? parameters[0].size(0) : 0) {}

  int64_t outputs() const { return parameters_.back().size(0); }

  /// Slots that `forward` fills and `backward` reads. Without a backward pass a few take turns.
  int64_t slots(bool keep) const {
    const int64_t per_layer = !shape_.residual ? (relu_ ? 1 : 2) : (relu_ ? 2 : 4) + (shape_.gated ? 2 : 0);
    const int64_t all = shape_.depth * per_layer + (shape_.residual ? 1 : 0);
    return keep ? all : std::min(all, shape_.residual ? per_layer + 2 : 2 * per_layer);
  }
  int64_t slot_size() const { return rows_ * width_; }
  int64_t width() const { return width_; }

  /// output (rows, outputs) from x (rows, inputs) and context (rows, C).
  void forward(const Tensor& x, const Tensor& context, T* slots, int64_t count, T* output) {
    slots_ = slots;
    count_ = count;
    const int64_t last = parameters_.size() / 2 - 1;
    const auto hidden = shape_.residual ? residual_forward(of(x), context) : mlp_forward(of(x));
    linear(hidden, last, output);
  }

  /// Fills the tensors of `gradients` that are there.
  void backward(const Tensor& x, const Tensor& context, T* slots, const Tensor& by_output, Gradients& gradients) {
    into_ = &gradients;
    slots_ = slots;
    count_ = next_ = this->slots(true);
    // Kept from one call to the next: memory fresh from the system costs as much as the arithmetic on it.
    thread_local std::vector<T> scratch;
    scratch.resize(std::max<size_t>(scratch.size(), 4 * slot_size()));
    scratch_ = scratch.data();
    if (shape_.residual)
      residual_backward(of(x), context, of(by_output));
    else
      mlp_backward(of(x), of(by_output));
  }

 private:
  static Matrix<T> of(const Tensor& t) { return {t.mutable_data_ptr<T>(), t.size(0), t.size(1)}; }
  Matrix<T> hidden(T* data) const { return {data, rows_, width_}; }
  Tensor tensor_of(const Matrix<T>& m) const {
    return at::from_blob(m.data, {m.rows, m.columns}, parameters_[0].options().requires_grad(false));
  }

  Matrix<T> weight(int64_t map) const { return of(parameters_[2 * map]); }
  const T* bias(int64_t map) const { return parameters_[2 * map + 1].template const_data_ptr<T>(); }
  /// Null where nobody asked.
  T* by_bias(int64_t map) const {
    return into_->by_parameters.empty() ? nullptr : into_->by_parameters[2 * map + 1].template mutable_data_ptr<T>();
  }

  /// The next slot on the way there, and the one before on the way back.
  Matrix<T> next() { return hidden(slots_ + (next_++ % count_) * slot_size()); }
  Matrix<T> previous() { return hidden(slots_ + --next_ * slot_size()); }
  Matrix<T> scratch(int64_t number) const { return hidden(scratch_ + number * slot_size()); }

  /// to = x W^T + b.
  void linear(const Matrix<T>& x, int64_t map, T* to, bool add = false, bool relu = false) const {
    const auto w = weight(map);
    products::multiply(x, Matrix<const T>(w.transposed()), Matrix<T>{to, rows_, w.rows},
                       {.bias = bias(map), .add = add, .relu = relu, .bfloat16 = rounds(shape_, map)});
  }
  void activate(const Matrix<T>& from, const Matrix<T>& to) const {
    tensor_of(to).copy_(activation_.forward(tensor_of(from)));
  }

  /// act(x W^T + b), in a slot; what came before the activation is in the one before, unless it is a rectifier.
  Matrix<T> hidden_of(const Matrix<T>& x, int64_t map) {
    const auto first = next();
    linear(x, map, first.data, false, relu_);
    if (relu_) return first;
    const auto second = next();
    activate(first, second);
    return second;
  }

  Matrix<T> mlp_forward(Matrix<T> h) {
    for (int64_t i = 0; i < shape_.depth; ++i) h = hidden_of(h, i);
    return h;
  }

  int64_t maps_of_block() const { return shape_.gated ? 3 : 2; }

  /// With a rectifier the sum h stays in the last slot throughout; else each block's is kept in one of its own.
  Matrix<T> residual_forward(const Matrix<T>& x, const Tensor& context) {
    auto h = relu_ ? hidden(slots_ + --count_ * slot_size()) : next();
    linear(x, 0, h.data);
    for (int64_t i = 0; i < shape_.depth; ++i) {
      const auto map = 1 + i * maps_of_block();
      const auto after = next();
      if (relu_)
        std::transform(h.data, h.data + slot_size(), after.data, [](T value) { return value > 0 ? value : T(0); });
      else
        activate(h, after);
      const auto inner = hidden_of(after, map);
      const auto before = h;
      if (shape_.gated) {
        const auto outcome = next(), gate = next();
        linear(inner, map + 1, outcome.data);
        linear(of(context), map + 2, gate.data);
        tensor_of(gate).sigmoid_();
        if (!relu_) h = next();
        for (int64_t k = 0; k < slot_size(); ++k) h.data[k] = before.data[k] + outcome.data[k] * gate.data[k];
      } else {
        if (!relu_) {
          h = next();
          std::copy_n(before.data, slot_size(), h.data);
        }
        linear(inner, map + 1, h.data, true);
      }
    }
    return h;
  }

  /// The gradient of a map's weight: by_output^T x.
  void by_weight(int64_t map, const Matrix<T>& by_output, const Matrix<T>& x) const {
    if (into_->by_parameters.empty()) return;
    products::multiply(Matrix<const T>(by_output.transposed()), x, of(into_->by_parameters[2 * map]),
                       {.bfloat16 = rounds(shape_, map)});
  }
  /// to = by_output W.
  void by_input(int64_t map, const Matrix<T>& by_output, T* to) const {
    const auto w = weight(map);
    products::multiply(by_output, w, Matrix<T>{to, rows_, w.columns}, {.bfloat16 = rounds(shape_, map)});
  }
  /// Sums over the rows, for the gradient of a bias.
  void sum(const Matrix<T>& of, T* sums) const {
    if (sums == nullptr) return;
    run<T>({of.data, nullptr, nullptr, sums, of.rows, of.columns, false});
  }

  /// Back through an activation, from `by_after` to the same place or, if `add`, on top of `to`; sums go to `sums`.
  void by_before(const Matrix<T>& by_after, const Matrix<T>& before, const Matrix<T>& after, T* to, bool add,
                 T* sums) const {
    if (sums == nullptr && spare_.empty()) spare_.resize(width_);
    const Rectified<T> pass{
        by_after.data, relu_ ? after.data : nullptr, to, sums != nullptr ? sums : spare_.data(), rows_, width_, add};
    if (!relu_)
      tensor_of(by_after).copy_(activation_.backward(tensor_of(by_after), tensor_of(before), tensor_of(after)));
    run(pass);
  }

  void mlp_backward(const Matrix<T>& x, Matrix<T> g) {
    sum(g, by_bias(shape_.depth));
    for (int64_t i = shape_.depth; i > 0; --i) {
      const auto after = previous(), before = relu_ ? Matrix<T>() : previous();
      by_weight(i, g, after);
      const auto by_after = scratch(i % 2);
      by_input(i, g, by_after.data);
      by_before(by_after, before, after, by_after.data, false, by_bias(i - 1));
      g = by_after;
    }
    finish(x, g);
  }

  void finish(const Matrix<T>& x, const Matrix<T>& g) const {
    by_weight(0, g, x);
    if (into_->by_x.defined()) by_input(0, g, into_->by_x.template mutable_data_ptr<T>());
  }

  void residual_backward(const Matrix<T>& x, const Tensor& context, const Matrix<T>& by_output) {
    const int64_t last = parameters_.size() / 2 - 1;
    sum(by_output, by_bias(last));
    auto h = previous();  // with a rectifier the one and only
    by_weight(last, by_output, h);
    const auto g = scratch(0), by_middle = scratch(1), by_outcome = scratch(2), by_gate = scratch(3);
    by_input(last, by_output, g.data);
    if (shape_.depth == 0) sum(g, by_bias(0));
    for (int64_t i = shape_.depth - 1; i >= 0; --i) {
      const auto map = 1 + i * maps_of_block();
      auto by_inner = g;
      if (shape_.gated) {
        const auto gate = previous(), outcome = previous();
        for (int64_t k = 0; k < slot_size(); ++k) {
          const T through = g.data[k] * gate.data[k];
          by_outcome.data[k] = through;
          by_gate.data[k] = through * outcome.data[k] * (1 - gate.data[k]);
        }
        sum(by_gate, by_bias(map + 2));
        by_weight(map + 2, by_gate, of(context));
        if (into_->by_context.defined())
          products::multiply(by_gate, weight(map + 2), of(into_->by_context), {.add = true});
        by_inner = by_outcome;
      }
      sum(by_inner, by_bias(map + 1));
      const auto inner = previous(), inner_before = relu_ ? Matrix<T>() : previous();
      by_weight(map + 1, by_inner, inner);
      by_input(map + 1, by_inner, by_middle.data);
      by_before(by_middle, inner_before, inner, by_middle.data, false, by_bias(map));
      const auto after = previous();
      by_weight(map, by_middle, after);
      by_input(map, by_middle, by_outcome.data);
      if (!relu_) h = previous();
      // The sums of the last round are the gradient of the first map's bias; those before are overwritten.
      by_before(by_outcome, h, after, g.data, true, by_bias(0));
    }
    finish(x, g);
  }

  const Shape& shape_;
  const std::vector<Tensor>& parameters_;
  const Activation& activation_;
  bool relu_;
  int64_t rows_, width_, count_ = 0, next_ = 0;
  T *slots_ = nullptr, *scratch_ = nullptr;
  mutable std::vector<T> spare_;  ///< for sums that nobody asked for
  Gradients* into_ = nullptr;
};

Tensor as_rows(const Tensor& t) { return t.dim() == 2 ? t.contiguous() : t.reshape({-1, t.size(-1)}).contiguous(); }

std::vector<Tensor> contiguous(std::vector<Tensor> tensors) {
  for (auto& tensor : tensors) tensor = tensor.contiguous();
  return tensors;
}

/// Rows that a thread takes at least. Fewer, and its sums over the rows cost more to add up than to make.
constexpr int64_t rows_of_part = 64;

/// The rows of a batch in parts, one for each thread: a pass through the whole network is then one meeting of threads,
/// not one for each product.
struct Parts {
  int64_t rows, count;

  static Parts for_threads(int64_t rows) {
    const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
    return {rows, std::clamp<int64_t>(rows / rows_of_part, 1, threads)};
  }
  int64_t first(int64_t part) const { return rows * part / count; }
  int64_t size(int64_t part) const { return first(part + 1) - first(part); }
  Tensor of(const Tensor& t, int64_t part) const { return t.defined() ? t.narrow(0, first(part), size(part)) : t; }

  template <class F>
  void each(const F& f) const {
    if (count == 1) return f(0);
    parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView below;
      for (int64_t part = begin; part < end; ++part) f(part);
    });
  }
};

/// The output, and what was kept on the way: the slots of each part in a tensor.
Passed forward_on_memory(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  const auto parts = Parts::for_threads(x.size(0));
  Passed passed;
  const auto dense = contiguous(parameters.vec());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::dense", [&] {
    const Network<scalar_t> whole(shape, dense, x.size(0));
    const auto count = whole.slots(true);
    passed.output = at::empty({x.size(0), whole.outputs()}, x.options());
    for (int64_t part = 0; part < parts.count; ++part)
      passed.kept.push_back(at::empty({count * parts.size(part) * whole.width()}, x.options()));
    parts.each([&](int64_t part) {
      Network<scalar_t>(shape, dense, parts.size(part))
          .forward(parts.of(x, part), parts.of(context, part), passed.kept[part].mutable_data_ptr<scalar_t>(), count,
                   passed.output.mutable_data_ptr<scalar_t>() + parts.first(part) * whole.outputs());
    });
  });
  return passed;
}

/// Sums of the gradients of parameters, which each part but the first made in memory of its own.
template <class T>
class PartSums {
 public:
  PartSums(const std::vector<Tensor>& sums, int64_t parts) : sums_(sums) {
    for (const auto& sum : sums) starts_.push_back(starts_.back() + sum.numel());
    if (parts == 1) return;
    // Kept from one call to the next.
    thread_local std::vector<T> memory;
    memory.resize(std::max<size_t>(memory.size(), (parts - 1) * starts_.back()));
    memory_ = memory.data();
    others_ = parts - 1;
  }

  std::vector<Tensor> of(int64_t part) const {
    if (part == 0) return sums_;
    std::vector<Tensor> result;
    for (size_t i = 0; i < sums_.size(); ++i)
      result.push_back(at::from_blob(memory_ + (part - 1) * starts_.back() + starts_[i], sums_[i].sizes(),
                                     sums_[i].options().requires_grad(false)));
    return result;
  }

  void add_up() const {
    if (others_ == 0) return;
    constexpr int64_t grain = 1 << 14;
    parallel_for(0, starts_.back(), grain, [&](int64_t begin, int64_t end) {
      for (size_t i = 0; i < sums_.size(); ++i) {
        const auto first = std::max(begin, starts_[i]), last = std::min(end, starts_[i + 1]);
        if (first >= last) continue;
        T* sum = sums_[i].template mutable_data_ptr<T>() - starts_[i];
        for (int64_t other = 0; other < others_; ++other) {
          const T* from = memory_ + other * starts_.back();
          for (int64_t k = first; k < last; ++k) sum[k] += from[k];
        }
      }
    });
  }

 private:
  const std::vector<Tensor>& sums_;
  std::vector<int64_t> starts_{0};
  T* memory_ = nullptr;
  int64_t others_ = 0;
};

Gradients backward_on_memory(const Shape& shape, const Tensor& x, const Tensor& context,
                             const variable_list& parameters, const std::vector<Tensor>& kept, const Tensor& by_output,
                             const Wanted& wanted) {
  const Parts parts{x.size(0), static_cast<int64_t>(kept.size())};
  Gradients gradients;
  if (wanted.parameters)
    for (const auto& parameter : parameters) gradients.by_parameters.push_back(gradient_for(parameter));
  if (wanted.x) gradients.by_x = at::empty_like(x);
  if (wanted.context) gradients.by_context = at::zeros_like(context);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::dense_backward", [&] {
    const PartSums<scalar_t> sums(gradients.by_parameters, parts.count);
    parts.each([&](int64_t part) {
      Gradients own{parts.of(gradients.by_x, part), parts.of(gradients.by_context, part), sums.of(part)};
      Network<scalar_t>(shape, parameters, parts.size(part))
          .backward(parts.of(x, part), parts.of(context, part), kept[part].mutable_data_ptr<scalar_t>(),
                    parts.of(by_output, part), own);
    });
    sums.add_up();
  });
  return gradients;
}

/// Numbers in the hidden units of a layer that stay in the second-level cache from one product to the next.
constexpr int64_t hidden_in_cache = 1 << 16;

/// The output alone, by so many rows at a time that their hidden units stay in the cache.
Tensor output_of(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters,
                 bool by_tensors) {
  const at::AutoDispatchBelowADInplaceOrView below;
  if (by_tensors) return forward_by_tensors(shape, x, context, parameters, false).output;
  Tensor output;
  const auto dense = contiguous(parameters.vec());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::dense", [&] {
    const int64_t rows = x.size(0), width = dense[0].size(0);
    const int64_t block = std::max<int64_t>(64, hidden_in_cache / std::max<int64_t>(width, 1) / 64 * 64);
    const auto pass = [&](int64_t first, int64_t count) {
      Network<scalar_t> network(shape, dense, count);
      // Kept from one call to the next, as that of the backward pass.
      thread_local std::vector<scalar_t> slots;
      slots.resize(std::max<size_t>(slots.size(), network.slots(false) * network.slot_size()));
      network.forward(x.narrow(0, first, count), context.defined() ? context.narrow(0, first, count) : context,
                      slots.data(), network.slots(false), output.mutable_data_ptr<scalar_t>() + first * output.size(1));
    };
    output = at::empty({rows, dense.back().size(0)}, x.options());
    const int64_t blocks = (rows + block - 1) / block;
    if (blocks <= 1) return pass(0, rows);
    parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      const at::AutoDispatchBelowADInplaceOrView below_too;
      for (int64_t i = begin; i < end; ++i) pass(i * block, std::min(block, rows - i * block));
    });
  });
  return output;
}

class Dense : public torch::autograd::Function<Dense> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const std::optional<Tensor>& given_context,
                        at::TensorList parameters, const Shape& shape, bool by_tensors) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto context = given_context.value_or(Tensor());
    const auto [output, kept] = by_tensors ? forward_by_tensors(shape, x, context, parameters, true)
                                           : forward_on_memory(shape, x, context, parameters);
    ctx->saved_data["residual"] = shape.residual;
    ctx->saved_data["depth"] = shape.depth;
    ctx->saved_data["activation"] = shape.activation;
    ctx->saved_data["gated"] = shape.gated;
    ctx->saved_data["bfloat16"] = shape.bfloat16;
    ctx->saved_data["by_tensors"] = by_tensors;
    ctx->saved_data["parameters"] = static_cast<int64_t>(parameters.size());
    variable_list saved{x, context};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    saved.insert(saved.end(), kept.begin(), kept.end());
    ctx->save_for_backward(saved);
    return output;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Shape shape{ctx->saved_data["residual"].toBool(), ctx->saved_data["depth"].toInt(),
                      ctx->saved_data["activation"].toStringRef(), ctx->saved_data["gated"].toBool(),
                      ctx->saved_data["bfloat16"].toBool()};
    const auto &x = saved[0], &context = saved[1];
    const auto first = saved.begin() + 2, last = first + ctx->saved_data["parameters"].toInt();
    const auto parameters = contiguous({first, last});
    if (at::GradMode::is_enabled()) return by_reference(shape, x, context, parameters, grads);
    const at::AutoDispatchBelowADInplaceOrView below;
    // Tensors that are not there have no number among the inputs of the node.
    const bool has_context = context.defined();
    Wanted wanted{.x = ctx->needs_input_grad(0), .context = has_context && ctx->needs_input_grad(1)};
    for (size_t i = 0; i < parameters.size(); ++i) wanted.parameters |= ctx->needs_input_grad(1 + has_context + i);
    const auto by_output = grads[0].contiguous();
    const auto gradients =
        ctx->saved_data["by_tensors"].toBool()
            ? backward_by_tensors(shape, x, context, parameters, {last, saved.end()}, by_output, wanted)
            : backward_on_memory(shape, x, context, parameters, {last, saved.end()}, by_output, wanted);
    variable_list result{gradients.by_x, gradients.by_context};
    result.insert(result.end(), gradients.by_parameters.begin(), gradients.by_parameters.end());
    result.resize(2 + parameters.size() + 2);  // the shape and the means have none
    return result;
  }

  /// Gradients that can be differentiated themselves.
  static variable_list by_reference(const Shape& shape, const Tensor& x, const Tensor& context,
                                    const variable_list& parameters, const variable_list& grads) {
    variable_list inputs{x, context}, wanted;
    inputs.insert(inputs.end(), parameters.begin(), parameters.end());
    for (const auto& input : inputs)
      if (input.defined() && input.requires_grad()) wanted.push_back(input);
    const auto found =
        torch::autograd::grad({reference(shape, x, context, parameters)}, wanted, grads, true, true, true);
    variable_list result;
    size_t next = 0;
    for (const auto& input : inputs)
      result.push_back(input.defined() && input.requires_grad() ? found[next++] : Tensor());
    result.resize(result.size() + 2);
    return result;
  }
};

Tensor as_one_node(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters,
                   bool by_tensors) {
  const auto rows = as_rows(x), contexts = shape.gated ? as_rows(context) : Tensor();
  const auto wanted = [](const Tensor& t) { return t.requires_grad(); };
  const bool differentiable =
      at::GradMode::is_enabled() && (x.requires_grad() || (shape.gated && context.requires_grad()) ||
                                     std::any_of(parameters.begin(), parameters.end(), wanted));
  auto output = differentiable ? Dense::apply(rows, shape.gated ? std::optional(contexts) : std::nullopt, parameters,
                                              shape, by_tensors)
                               : output_of(shape, rows, contexts, parameters, by_tensors);
  if (x.dim() == 2) return output;
  auto sizes = x.sizes().vec();
  sizes.back() = output.size(-1);
  return output.view(sizes);
}

}  // namespace

Passed forward(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  const at::AutoDispatchBelowADInplaceOrView below;
  return x.device().is_cpu() ? forward_on_memory(shape, x, context, parameters)
                             : forward_by_tensors(shape, x, context, parameters, true);
}

Gradients backward(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters,
                   const std::vector<Tensor>& kept, const Tensor& by_output, const Wanted& wanted) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto in_rows = contiguous(parameters.vec());
  return x.device().is_cpu() ? backward_on_memory(shape, x, context, in_rows, kept, by_output, wanted)
                             : backward_by_tensors(shape, x, context, in_rows, kept, by_output, wanted);
}

bool fused(const Shape& shape, const Tensor& x) {
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kDouble) return false;
  return x.device().is_cpu() || (x.device().is_cuda() && !shape.bfloat16);
}

Tensor reference(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  const auto& act = activation(shape.activation).forward;
  size_t next = 0;
  const auto map = [&](const Tensor& h) {
    next += 2;
    const auto &weight = parameters[next - 2], &bias = parameters[next - 1];
    if (h.scalar_type() != at::kFloat || !rounds(shape, next / 2 - 1)) return at::linear(h, weight, bias);
    const auto a = h.to(at::kBFloat16), b = weight.to(at::kBFloat16);
    // On a GPU the product itself is one of bfloat16, and rounded to it.
    if (!h.device().is_cpu()) return at::linear(a, b).to(at::kFloat) + bias;
    return at::linear(a.to(at::kFloat), b.to(at::kFloat), bias);
  };
  auto h = shape.residual ? map(x) : x;
  for (int64_t i = 0; i < shape.depth; ++i) {
    if (!shape.residual) {
      h = act(map(h));
      continue;
    }
    auto inner = map(act(map(act(h))));
    if (shape.gated) inner = inner * at::sigmoid(map(context));
    h = h + inner;
  }
  return map(h);
}

Tensor apply(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  if (!fused(shape, x)) return reference(shape, x, context, parameters);
  return as_one_node(shape, x, context, parameters, !x.device().is_cpu());
}

Tensor apply_by_tensors(const Shape& shape, const Tensor& x, const Tensor& context, at::TensorList parameters) {
  return as_one_node(shape, x, context, parameters, true);
}

}  // namespace diffeo::dense
