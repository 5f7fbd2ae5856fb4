#include "diffeo/layers/coupling/features.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

namespace diffeo {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor like(const Tensor& x, int64_t features) {
  auto sizes = x.sizes().vec();
  sizes.back() = features;
  return at::empty(sizes, x.options());
}

/// On the CPU a loop over the rows: it costs less than to ask for a general index operation.
template <bool split>
void copy_features(const Tensor& whole, const Tensor& part, const Tensor& index) {
  if (!whole.device().is_cpu()) {
    Tensor to = split ? part : whole;
    if constexpr (split)
      to.copy_(whole.index_select(-1, index));
    else
      to.index_copy_(-1, index, part);
    return;
  }
  const auto count = index.size(0), features = whole.size(-1), rows = count == 0 ? 0 : part.numel() / count;
  const auto* at = index.const_data_ptr<int64_t>();
  bool in_one = true;  // as the halves are
  for (int64_t i = 1; i < count; ++i) in_one = in_one && at[i] == at[0] + i;
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, whole.scalar_type(), "diffeo::features", [&] {
    if constexpr (split) {
      const auto* from = whole.const_data_ptr<scalar_t>();
      auto* to = part.mutable_data_ptr<scalar_t>();
      for (int64_t row = 0; row < rows; ++row, from += features, to += count)
        if (in_one)
          std::copy_n(from + at[0], count, to);
        else
          for (int64_t i = 0; i < count; ++i) to[i] = from[at[i]];
    } else {
      const auto* from = part.const_data_ptr<scalar_t>();
      auto* to = whole.mutable_data_ptr<scalar_t>();
      for (int64_t row = 0; row < rows; ++row, from += count, to += features)
        if (in_one)
          std::copy_n(from, count, to + at[0]);
        else
          for (int64_t i = 0; i < count; ++i) to[at[i]] = from[i];
    }
  });
}

class Split : public torch::autograd::Function<Split> {
 public:
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& first, const Tensor& second) {
    const auto [x_first, x_second] = take_apart(x, first, second);
    ctx->save_for_backward({first, second});
    return {x_first, x_second};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    return {join_features(grads[0], grads[1], saved[0], saved[1]), {}, {}};
  }
};

class Join : public torch::autograd::Function<Join> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x_first, const Tensor& x_second, const Tensor& first,
                        const Tensor& second) {
    ctx->save_for_backward({first, second});
    return put_together(x_first, x_second, first, second);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    auto [x_first, x_second] = split_features(grads[0], saved[0], saved[1]);
    return {x_first, x_second, {}, {}};
  }
};

}  // namespace

std::pair<Tensor, Tensor> take_apart(const Tensor& x, const Tensor& first, const Tensor& second) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto whole = x.contiguous();
  auto x_first = like(x, first.size(0)), x_second = like(x, second.size(0));
  copy_features<true>(whole, x_first, first);
  copy_features<true>(whole, x_second, second);
  return {x_first, x_second};
}

Tensor put_together(const Tensor& x_first, const Tensor& x_second, const Tensor& first, const Tensor& second) {
  const at::AutoDispatchBelowADInplaceOrView below;
  auto whole = like(x_first, first.size(0) + second.size(0));
  copy_features<false>(whole, x_first.contiguous(), first);
  copy_features<false>(whole, x_second.contiguous(), second);
  return whole;
}

std::pair<Tensor, Tensor> split_features(const Tensor& x, const Tensor& first, const Tensor& second) {
  if (!at::GradMode::is_enabled()) return take_apart(x, first, second);
  auto parts = Split::apply(x, first, second);
  return {parts[0], parts[1]};
}

Tensor join_features(const Tensor& x_first, const Tensor& x_second, const Tensor& first, const Tensor& second) {
  if (!at::GradMode::is_enabled()) return put_together(x_first, x_second, first, second);
  return Join::apply(x_first, x_second, first, second);
}

}  // namespace diffeo
