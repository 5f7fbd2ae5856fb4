#include "diffeo/layers/shuffle/reordered.h"

#include <torch/csrc/autograd/custom_function.h>

namespace diffeo {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Reordered : torch::autograd::Function<Reordered> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& order, const Tensor& inverse) {
    at::AutoDispatchBelowADInplaceOrView below;
    ctx->saved_data["order"] = order;
    ctx->saved_data["inverse"] = inverse;
    return x.index_select(-1, order);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {apply(grads[0], ctx->saved_data["inverse"].toTensor(), ctx->saved_data["order"].toTensor()), {}, {}};
  }
};

}  // namespace

Tensor reordered(const Tensor& x, const Tensor& order, const Tensor& inverse) {
  return Reordered::apply(x, order, inverse);
}

}  // namespace diffeo
