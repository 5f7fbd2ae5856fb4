#include "diffeo/layers/linear/convolution.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_lu_solve.h>
#include <ATen/ops/linalg_slogdet.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

Space images(const Convolution::Options& options) {
  auto space = Space::reals(at_least(1, "channels", options.channels) * at_least(1, "height", options.height) *
                            at_least(1, "width", options.width));
  space.event = {options.channels, options.height, options.width};
  return space;
}

}  // namespace

Convolution::Convolution(const Options& options) : Layer(images(options)), options_(options) {
  if (options.kernel < 1 || options.kernel % 2 == 0)
    throw SpecError("kernel", c10::str("must be odd and at least 1, got ", options.kernel));
  check_choice("start", options.start, {"identity", "minus_identity"});
  auto weight = at::zeros({options.channels, options.channels, options.kernel, options.kernel});
  const auto middle = options.kernel / 2;
  weight.select(3, middle).select(2, middle).copy_(at::eye(options.channels) * (options.start == "identity" ? 1 : -1));
  weight_ = register_parameter("weight", weight);
  if (options.bias) bias_ = register_parameter("bias", at::zeros({options.channels}));
}

Tensor Convolution::convolved(const Tensor& images, const Tensor& bias) const {
  const auto around = options_.kernel / 2;
  return at::conv2d(images, weight_, bias, 1, at::IntArrayRef{around, around});
}

Tensor Convolution::matrix_rows() const {
  const auto size = domain().size();
  const auto units = at::eye(size, weight_.options().requires_grad(false));
  return convolved(units.view({size, options_.channels, options_.height, options_.width}), {}).reshape({size, size});
}

Factors Convolution::factors() {
  return kept_.of(weight_, [&] { return matrix_rows(); });
}

Tensor Convolution::log_det() {
  return in_graph() ? std::get<1>(at::linalg_slogdet(matrix_rows())) : factors().log_det;
}

Tensor Convolution::map_value(const Tensor& x, const Tensor&) {
  return convolved(x.reshape({-1, options_.channels, options_.height, options_.width}), bias_).reshape(x.sizes());
}

Mapped Convolution::map(const Tensor& x, const Tensor& context) {
  return {map_value(x, context), log_det().expand(batch_of(x))};
}

Tensor Convolution::unmap_value(const Tensor& y, const Tensor&) {
  const auto rows = centred(y);
  if (in_graph()) return at::linalg_solve(matrix_rows(), rows, /*left=*/false).view(y.sizes());
  const auto [lu, pivots, log_det] = factors();
  return at::linalg_lu_solve(lu, pivots, rows.t(), /*left=*/true, /*adjoint=*/true).t().reshape(y.sizes());
}

Tensor Convolution::centred(const Tensor& y) const {
  return (bias_.defined() ? y - bias_.view({-1, 1, 1}) : y).reshape({-1, domain().size()});
}

Mapped Convolution::unmap(const Tensor& y, const Tensor& context) {
  if (!in_graph()) return {unmap_value(y, context), log_det().neg().expand(batch_of(y))};
  const auto matrix = matrix_rows();  // once for both
  return {at::linalg_solve(matrix, centred(y), /*left=*/false).view(y.sizes()),
          std::get<1>(at::linalg_slogdet(matrix)).neg().expand(batch_of(y))};
}

DIFFEO_LAYER(convolution, Convolution, "Convolution of images by a kernel of full rank (Chao et al. 2023).",
             "y = w * x + b, log|det| = log|det M|, M the matrix of x -> w * x",
             "C D k^2 forward, D = C H W, and D^3 once for each value of w for the determinant or the inverse; inverse "
             "D^2",
             {"two_channels", {{"channels", 2}, {"height", 3}, {"width", 2}}},
             {"pointwise",
              {{"channels", 3},
               {"height", 2},
               {"width", 2},
               {"kernel", 1},
               {"bias", false},
               {"start", "minus_identity"}}});

}  // namespace diffeo
