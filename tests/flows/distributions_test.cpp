// Every registered distribution, in both precisions, must be a density that its draws follow.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/flows/distribution.h"
#include "flows/density.h"

namespace diffeo::testing {
namespace {

struct DistributionCase {
  std::string name;
  Json spec;
  torch::Dtype dtype;
};
void PrintTo(const DistributionCase& c, std::ostream* out) { *out << c.name << " " << c.spec.dump(); }

std::vector<DistributionCase> every_distribution() {
  std::vector<DistributionCase> cases;
  for (const auto* entry : all_distributions()) {
    for (const auto& example : entry->examples) {
      Json spec = {{"type", entry->name}};
      spec.update(example.spec);
      cases.push_back({entry->name + "_" + example.name + "_f32", spec, torch::kFloat32});
      cases.push_back({entry->name + "_" + example.name + "_f64", spec, torch::kFloat64});
    }
  }
  return cases;
}

class DistributionProperties : public ::testing::TestWithParam<DistributionCase> {
 protected:
  DistributionProperties() {
    torch::manual_seed(5);
    distribution = build_distribution(GetParam().spec);
    distribution->to(GetParam().dtype);
    torch::NoGradGuard no_grad;
    for (auto& parameter : distribution->parameters()) parameter.add_(torch::randn_like(parameter), 0.3);
    distribution->eval();
  }

  torch::TensorOptions options() const { return GetParam().dtype; }
  double tolerance() const { return GetParam().dtype == torch::kFloat64 ? 1e-9 : 1e-4; }
  Tensor context(std::vector<int64_t> batch) const {
    if (distribution->context_size() == 0) return {};
    batch.push_back(distribution->context_size());
    return torch::randn(batch, options());
  }

  DistributionPtr distribution;
};

TEST_P(DistributionProperties, DrawnPointsHaveTheDensityThatTheyCameWith) {
  for (auto batch : std::vector<std::vector<int64_t>>{{}, {1}, {16}, {3, 4}, {0}}) {
    const auto c = context(batch);
    const auto [x, log_prob] = distribution->draw(batch, c);
    ASSERT_EQ(log_prob.sizes(), at::IntArrayRef(batch));
    EXPECT_EQ(x.scalar_type(), GetParam().dtype);
    EXPECT_EQ(log_prob.scalar_type(), GetParam().dtype);
    EXPECT_TRUE(torch::allclose(distribution->log_prob(x, c), log_prob, tolerance(), tolerance()));
    EXPECT_TRUE(log_prob.isfinite().all().item<bool>());
  }
}

TEST_P(DistributionProperties, DensityIntegratesToOne) {
  const auto size = distribution->space().size();
  if (size > 2) return;
  const auto grid = grid_over(distribution->space(), size == 1 ? 20000 : 300, 16);
  auto c = context({1});
  torch::NoGradGuard no_grad;
  const auto density = distribution->log_prob(grid.points.to(GetParam().dtype), c).to(torch::kDouble).exp();
  EXPECT_NEAR((density * grid.volumes).sum().item<double>(), 1, 1e-3);
}

TEST_P(DistributionProperties, DrawsFollowTheDensity) {
  const auto size = distribution->space().size();
  if (size > 2) return;
  const auto c = context({1});
  torch::NoGradGuard no_grad;
  const auto grid = grid_over(distribution->space(), size == 1 ? 20000 : 300, 16);
  const auto weight =
      distribution->log_prob(grid.points.to(GetParam().dtype), c).to(torch::kDouble).exp() * grid.volumes;
  const int64_t n = 40000;
  const auto x = distribution->draw({n}, c.defined() ? c.expand({n, -1}) : c).value.to(torch::kDouble);
  // Bounded functions, so that heavy tails have means too; they tell shift, spread, skew and dependence apart.
  const auto functions = [](const Tensor& p) {
    return torch::cat({p.sin(), p.cos(), (2 * p).sin(), (2 * p).cos(), p.tanh(), (p / 3).tanh().square(),
                       p.tanh().prod(-1, true), (p.sum(-1, true)).sin()},
                      -1);
  };
  const auto want = (functions(grid.points) * weight.unsqueeze(1)).sum(0) / weight.sum();
  const auto values = functions(x);
  const auto error = values.std(0) / std::sqrt(static_cast<double>(n));
  const auto sigmas = ((values.mean(0) - want) / error).abs().max().item<double>();
  EXPECT_LT(sigmas, 4) << "seed 5: means of draws " << values.mean(0) << "\nof the density " << want;
}

TEST_P(DistributionProperties, GradientsReachEveryParameter) {
  auto parameters = distribution->parameters();
  if (parameters.empty()) return;
  const auto c = context({64});
  const auto x = distribution->draw({64}, c).value.detach();
  distribution->train();
  const auto grads = torch::autograd::grad({(distribution->log_prob(x, c)).sum()}, parameters, {}, {}, false, true);
  for (size_t i = 0; i < grads.size(); ++i) {
    ASSERT_TRUE(grads[i].defined()) << distribution->named_parameters()[i].key();
    EXPECT_TRUE(grads[i].isfinite().all().item<bool>());
    EXPECT_GT(grads[i].abs().max().item<double>(), 0) << distribution->named_parameters()[i].key();
  }
}

TEST_P(DistributionProperties, SpecRebuildsTheDistribution) {
  const auto spec = distribution->spec();
  const auto again = build_distribution(spec);
  EXPECT_EQ(again->spec(), spec);
  EXPECT_EQ(spec["type"], GetParam().spec["type"]);
  again->to(GetParam().dtype);
  copy_state(*distribution, *again);
  again->eval();
  const auto c = context({4});
  const auto x = distribution->draw({4}, c).value;
  copy_state(*distribution, *again);
  EXPECT_TRUE(torch::equal(again->log_prob(x, c), distribution->log_prob(x, c)));
}

TEST_P(DistributionProperties, WrongArgumentsAreRefused) {
  const auto size = distribution->space().size();
  const auto other = GetParam().dtype == torch::kFloat32 ? torch::kFloat64 : torch::kFloat32;
  EXPECT_THROW(distribution->log_prob(torch::zeros({2, size + 1}, options()), context({2})), Error);
  EXPECT_THROW(distribution->log_prob(torch::zeros({2, size}, other), context({2})), Error);
  EXPECT_THROW(distribution->log_prob({}, context({2})), Error);
  const auto wrong = distribution->context_size() > 0 ? Tensor() : torch::zeros({2, 1}, options());
  EXPECT_THROW(distribution->log_prob(torch::zeros({2, size}, options()), wrong), Error);
  EXPECT_THROW(distribution->draw({2}, wrong), Error);
}

TEST_P(DistributionProperties, SamplesHaveTheShapesThatContextsGive) {
  const auto size = distribution->space().size();
  if (distribution->context_size() == 0) {
    EXPECT_EQ(distribution->sample(5).sizes(), at::IntArrayRef({5, size}));
    return;
  }
  EXPECT_EQ(distribution->sample(5, context({3})).sizes(), at::IntArrayRef({3, 5, size}));
  EXPECT_EQ(distribution->sample_paired(context({3})).sizes(), at::IntArrayRef({3, size}));
  EXPECT_THROW(distribution->sample(5), Error);
}

INSTANTIATE_TEST_SUITE_P(Every, DistributionProperties, ::testing::ValuesIn(every_distribution()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace diffeo::testing
