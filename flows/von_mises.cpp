#include "diffeo/flows/von_mises.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/special_i0e.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numbers>

namespace diffeo {
namespace {

constexpr double pi = std::numbers::pi;
constexpr double largest_log_concentration = 30;

/// One round of proposals: angles, and which of them are accepted.
///
/// Best and Fisher's r is 1 + s here, and 1 - f and r - f are written without the differences that vanish for a large
/// concentration (s is about 1 / (2 kappa) then).
std::pair<Tensor, Tensor> propose(const Tensor& kappa, const Tensor& s) {
  const auto u = at::rand({3, kappa.size(0)}, kappa.options());
  const auto z = (pi * u[0]).cos();
  const auto one_minus_f = s * (1 - z) / (1 + s + z);
  const auto c = kappa * s * (s + 2) / (1 + s + z);
  // NaN is accepted: it would be proposed for ever.
  const auto rejected = (c * (2 - c) - u[1] <= 0).logical_and(c.log() - u[1].log() + 1 - c < 0);
  const auto angle = 2 * (0.5 * one_minus_f).clamp(0, 1).sqrt().asin();
  return {at::where(u[2] < 0.5, angle, -angle), rejected.logical_not()};
}

}  // namespace

Tensor von_mises_angles(const Tensor& given) {
  torch::NoGradGuard no_grad;
  // Below this the distribution is uniform to all digits, and r beyond them.
  const auto kappa = given.to(at::kDouble).clamp_min(1e-8);
  const auto tau = 1 + (1 + 4 * kappa.square()).sqrt();
  const auto rho = (tau - (2 * tau).sqrt()) / (2 * kappa);
  const auto s = (1 - rho).square() / (2 * rho);
  auto angles = at::empty_like(kappa);
  auto left = at::ones_like(kappa, at::kBool).nonzero().squeeze(1);
  while (left.size(0) > 0) {  // each round accepts at least about two thirds
    const auto [angle, accepted] = propose(kappa.index_select(0, left), s.index_select(0, left));
    angles.index_put_({left.masked_select(accepted)}, angle.masked_select(accepted));
    left = left.masked_select(accepted.logical_not());
  }
  return angles;
}

VonMises::VonMises(const Options& options)
    : Distribution(Space::torus(at_least(1, "features", options.features))), options_(options) {
  if (!(options.concentration > 0 && std::log(options.concentration) < largest_log_concentration))
    throw SpecError("concentration", c10::str("must be above 0 and below e^30, got ", options.concentration));
  location_ = register_parameter("location", at::zeros({options.features}));
  log_concentration_ =
      register_parameter("log_concentration", at::full({options.features}, std::log(options.concentration)));
}

Tensor VonMises::concentration() const {
  return log_concentration_.clamp(-largest_log_concentration, largest_log_concentration).exp();
}

Tensor VonMises::evaluate(const Tensor& x, const Tensor&) {
  const auto kappa = concentration();
  // kappa cos d - log I0 = -2 kappa sin^2(d / 2) - log(e^-kappa I0): nothing large is taken from anything large.
  const auto exponent = -2 * kappa * ((x - location_) / 2).sin().square();
  return (exponent - (2 * pi * at::special_i0e(kappa)).log()).sum(-1);
}

Drawn VonMises::simulate(at::IntArrayRef batch, const Tensor&) {
  auto shape = batch.vec();
  shape.push_back(options_.features);
  const auto angles = von_mises_angles(concentration().detach().expand(shape).flatten()).view(shape);
  const auto x = at::remainder(location_ + angles.to(location_.scalar_type()) + pi, 2 * pi) - pi;
  return {x, evaluate(x, {})};
}

DIFFEO_DISTRIBUTION(von_mises, VonMises, "Von Mises on a torus.",
                    {"one_angle", {{"features", 1}, {"concentration", 3.0}}}, {"two_angles", {{"features", 2}}});

}  // namespace diffeo
