// Every layer must carry the score of a density as autograd finds it: the gradient of the log density that it makes.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "properties/cases.h"

namespace diffeo::testing {
namespace {

std::vector<Case> in_double() {
  std::vector<Case> cases;
  for (auto& one : every_case())
    if (one.dtype == torch::kFloat64) cases.push_back(std::move(one));
  return cases;
}

/// A log density, up to a constant, with a gradient everywhere: sum_i w_i sin(x_i + i) - (sum_i x_i)^2 / 10.
Tensor some_log_density(const Tensor& x, int64_t batch) {
  const auto flat = x.flatten(batch);
  const auto numbers = torch::arange(1, flat.size(-1) + 1, flat.options());
  return (numbers.sqrt() * (flat + numbers).sin()).sum(-1) - 0.1 * flat.sum(-1).square();
}

class ScoreProperties : public ::testing::TestWithParam<Case> {
 protected:
  ScoreProperties() : layer(build(GetParam())) {}  // seeds torch with 1

  torch::TensorOptions options() const { return torch::TensorOptions(GetParam().dtype).device(GetParam().device); }
  Tensor context(std::vector<int64_t> batch) const {
    if (layer->context_size() == 0) return {};
    batch.push_back(layer->context_size());
    return torch::randn(batch, options());
  }
  static void expect_close(const Tensor& got, const Tensor& want, const char* what) {
    ASSERT_EQ(got.sizes(), want.sizes()) << what;
    EXPECT_TRUE(torch::allclose(got, want, 1e-7, 1e-8))
        << what << ": largest difference " << (got - want).abs().max() << "\ngot " << got << "\nwant " << want;
  }
  Mapped plain(const Tensor& points, const Tensor& c, bool forward) {
    return forward ? layer->forward(points, c) : layer->inverse(points, c);
  }
  Scored scored(const Tensor& points, const Tensor& score, const Tensor& c, bool forward) {
    return forward ? layer->forward_with_score(points, score, c) : layer->inverse_with_score(points, score, c);
  }

  void check(const std::vector<int64_t>& batch, bool forward) {
    const auto dims = static_cast<int64_t>(batch.size());
    const auto c = context(batch);
    auto points = points_in(layer->domain(), batch, options());
    if (!forward) points = layer->forward(points, c).value.detach();
    const auto start = points.clone().requires_grad_();
    const auto score = torch::autograd::grad({some_log_density(start, dims).sum()}, {start})[0];
    const auto got = scored(points, score, c, forward);
    const auto want = plain(points, c, forward);
    expect_close(got.value.detach(), want.value.detach(), "value");
    expect_close(got.log_det, want.log_det.detach(), "log_det");
    EXPECT_FALSE(got.log_det.requires_grad() || got.score.requires_grad());
    // By definition: the log density there is that of where it comes from, and the way back's log_det.
    const auto there = want.value.detach().requires_grad_();
    const auto [back, log_det] = plain(there, c, !forward);
    const auto log_density = some_log_density(back, dims) + log_det;
    expect_close(got.score, torch::autograd::grad({log_density.sum()}, {there})[0], "score");
    // The values keep the derivatives that they have without a score.
    const auto parameters = layer->parameters();
    if (parameters.empty()) return;
    const auto weights = torch::randn_like(want.value);
    const auto gradients = [&](const Tensor& value) {
      if (!value.requires_grad()) return std::vector<Tensor>(parameters.size());
      return torch::autograd::grad({(value * weights).sum()}, parameters, {}, {}, false, true);
    };
    const auto by_path = gradients(got.value), by_plain = gradients(want.value);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto zero = torch::zeros_like(parameters[i]);
      expect_close(by_path[i].defined() ? by_path[i] : zero, by_plain[i].defined() ? by_plain[i] : zero,
                   layer->named_parameters()[i].key().c_str());
    }
  }

  LayerPtr layer;
};

TEST_P(ScoreProperties, ForwardCarriesIt) {
  for (const auto& batch : std::vector<std::vector<int64_t>>{{6}, {2, 3}, {}}) check(batch, true);
}

TEST_P(ScoreProperties, InverseCarriesIt) {
  for (const auto& batch : std::vector<std::vector<int64_t>>{{6}, {2, 3}, {}}) check(batch, false);
}

TEST_P(ScoreProperties, NoGraphIsKeptWhereNoneIsAskedFor) {
  torch::NoGradGuard no_grad;
  const auto c = context({4}), x = points_in(layer->domain(), {4}, options());
  const auto there = layer->forward_with_score(x, torch::zeros_like(x), c);
  EXPECT_FALSE(there.value.requires_grad());
  // Of a flat density, the score that a layer makes is undone by the way back.
  const auto back = layer->inverse_with_score(there.value, there.score, c);
  expect_close(back.score, torch::zeros_like(x), "score");
  EXPECT_THROW(layer->forward_with_score(x, Tensor(), c), Error);
  EXPECT_THROW(layer->forward_with_score(x, torch::zeros({4, 99}, options()), c), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, ScoreProperties, ::testing::ValuesIn(in_double()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace diffeo::testing
