#include "diffeo/layers/linear/rotation.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <numbers>
#include <random>

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

int64_t rounds_of(const Rotation::Options& options) { return options.rounds > 0 ? options.rounds : options.features; }

int64_t pairs_in(int64_t features, int64_t round) { return (features - round % 2) / 2; }

std::vector<double> first_angles(const Rotation::Options& options) {
  std::vector<double> angles;
  std::mt19937_64 random(static_cast<uint64_t>(options.seed));
  // Not a distribution of the standard library: they differ from one to the next.
  const auto angle = [&] { return (std::ldexp(random() >> 11, -52) - 1) * std::numbers::pi; };
  for (int64_t round = 0; round < rounds_of(options); ++round)
    for (int64_t pair = 0; pair < pairs_in(options.features, round); ++pair)
      angles.push_back(options.start == "random" ? angle() : 0.0);
  return angles;
}

}  // namespace

Rotation::Rotation(const Options& options)
    : Layer(Space::reals(at_least(2, "features", options.features))), options_(options) {
  at_least(0, "rounds", options.rounds);
  check_choice("start", options.start, {"identity", "random"});
  const auto angles = at::tensor(first_angles(options), at::kFloat);
  angles_ = options.trainable ? register_parameter("angles", angles) : register_buffer("angles", angles);
}

Tensor Rotation::matrix() const {
  const auto features = options_.features;
  auto matrix = at::eye(features, angles_.options());
  for (int64_t round = 0, used = 0; round < rounds_of(options_); ++round) {
    const auto pairs = pairs_in(features, round), first = round % 2, last = first + 2 * pairs;
    const auto angle = angles_.narrow(0, used, pairs).unsqueeze(-1);
    const auto rows = matrix.slice(0, first, last).unflatten(0, {pairs, 2});
    const auto a = rows.select(1, 0), b = rows.select(1, 1), cosine = angle.cos(), sine = angle.sin();
    const auto turned = at::stack({cosine * a - sine * b, sine * a + cosine * b}, 1).flatten(0, 1);
    matrix = at::cat({matrix.slice(0, 0, first), turned, matrix.slice(0, last)});
    used += pairs;
  }
  return matrix;
}

Mapped Rotation::map(const Tensor& x, const Tensor&) {
  return {at::matmul(x, matrix().t()), x.new_zeros(x.sizes().slice(0, x.dim() - 1))};
}

Mapped Rotation::unmap(const Tensor& y, const Tensor&) {
  return {at::matmul(y, matrix()), y.new_zeros(y.sizes().slice(0, y.dim() - 1))};
}

DIFFEO_LAYER(rotation, Rotation, "Rotations in planes of neighbouring features (Clements et al. 2016).", "y = Q x, Q a product of plane rotations, log|det| = 0", "D times the number of rounds, both ways",
             {"two_features", {{"features", 2}}}, {"one_round", {{"features", 5}, {"rounds", 1}}},
             {"fixed", {{"features", 4}, {"start", "random"}, {"seed", 5}, {"trainable", false}}});

}  // namespace diffeo
