// Fair normalizing flows: exact identities of total variation distances, divergences and certificates.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "diffeo/flows/full_mixture.h"
#include "diffeo/flows/full_normal.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/layers/sequential/sequential.h"
#include "diffeo/trainers/fair/audit.h"
#include "diffeo/trainers/fair/cells.h"
#include "diffeo/trainers/fair/fair_fit.h"
#include "diffeo/trainers/fair/fair_model.h"
#include "diffeo/trainers/tail_probability.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 11;

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

/// A normal of two features in float64.
DistributionPtr normal(double mean_of_first, double deviation_of_first = 1, double mean_of_second = 0) {
  auto made = std::make_shared<FullMixture>(FullMixture::Options{.features = 2, .components = 1});
  made->to(torch::kFloat64);
  made->set(torch::ones({1}, torch::kFloat64), torch::tensor({{mean_of_first, mean_of_second}}, torch::kFloat64),
            torch::tensor({{{deviation_of_first * deviation_of_first, 0.0}, {0.0, 1.0}}}, torch::kFloat64));
  return made;
}

/// A model whose encoders are alike and no identity.
FairFlowPtr alike(int64_t groups = 2, int64_t layers = 4) {
  torch::manual_seed(seed);
  auto model = std::make_shared<FairFlow>(
      FairFlow::Options{.features = 2, .groups = groups, .layers = layers, .width = 8, .depth = 1});
  model->to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  const auto first = model->named_children()["encoder0"];
  for (auto& parameter : first->parameters()) parameter.add_(torch::randn_like(parameter), 0.4);
  for (int64_t a = 1; a < groups; ++a) copy_state(*first, *model->named_children()["encoder" + std::to_string(a)]);
  model->eval();
  return model;
}

FairObjective objective_of(const FairFlowPtr& model, const GroupDensities& densities,
                           const FairObjective::Options& options = {}) {
  return {model, densities, torch::full({model->groups()}, 1.0 / static_cast<double>(model->groups())), options};
}

std::string problem(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FairCertificate, IsTheTotalVariationDistanceOfShiftedNormals) {
  const auto model = alike();
  for (double shift : {1.0, 2.0, 3.0}) {
    torch::manual_seed(seed);
    const double want = 2 * normal_cdf(shift / 2) - 1;
    const auto log_densities = drawn_log_densities(*model, {normal(0), normal(shift)}, 40000);
    const auto certificate = certify(log_densities, 0.99);
    EXPECT_NEAR(certificate.delta(), want, 4 / std::sqrt(40000.0)) << "shift " << shift << " seed " << seed;
    EXPECT_NEAR(weighted_delta(log_densities), want, 3 / std::sqrt(40000.0)) << "shift " << shift;
    EXPECT_GE(certificate.upper(), (1 + want) / 2);
    EXPECT_LE(certificate.upper(), certificate.accuracy + 0.01);
  }
  EXPECT_NEAR(2 * normal_cdf(0.5) - 1, 0.382925, 1e-6);
}

TEST(FairCertificate, IsTheTotalVariationDistanceOfNormalsOfDifferentWidth) {
  torch::manual_seed(seed);
  const auto log_densities = drawn_log_densities(*alike(), {normal(0, 1), normal(0, 2)}, 40000);
  EXPECT_NEAR(certify(log_densities, 0.99).delta(), 0.322675, 4 / std::sqrt(40000.0)) << "seed " << seed;
  EXPECT_NEAR(weighted_delta(log_densities), 0.322675, 3 / std::sqrt(40000.0));
}

TEST(FairCertificate, EncodersThatAreAlikeLeaveRatiosOfDensities) {
  const auto model = alike();
  const std::vector<DistributionPtr> densities{normal(0), normal(1.5, 0.7, -1)};
  torch::manual_seed(seed);
  const auto x = torch::randn({200, 2}, torch::kFloat64) * 2;
  const torch::NoGradGuard no_grad;
  const auto latent = latent_log_densities(*model, densities, model->encode(x, 0).value);
  const auto before = densities[0]->log_prob(x) - densities[1]->log_prob(x);
  EXPECT_LT((latent.select(1, 0) - latent.select(1, 1) - before).abs().max().item<double>(), 1e-9);
}

TEST(FairCertificate, LatentDensitiesAgreeWithDifferencesOfTheEncoder) {
  const auto model = alike();
  const torch::NoGradGuard no_grad;
  torch::manual_seed(seed);
  const auto density = normal(0.3);
  const auto x = torch::randn({20, 2}, torch::kFloat64);
  const auto latent = latent_log_densities(*model, {density, density}, model->encode(x, 1).value).select(1, 1);
  constexpr double step = 1e-6;
  std::vector<Tensor> columns;
  for (int64_t i = 0; i < 2; ++i) {
    auto up = x.clone(), down = x.clone();
    up.select(1, i).add_(step), down.select(1, i).sub_(step);
    columns.push_back((model->encode(up, 1).value - model->encode(down, 1).value) / (2 * step));
  }
  const auto determinant =
      columns[0].select(1, 0) * columns[1].select(1, 1) - columns[1].select(1, 0) * columns[0].select(1, 1);
  EXPECT_LT((latent - density->log_prob(x) + determinant.abs().log()).abs().max().item<double>(), 1e-6);
}

TEST(FairCertificate, ManyGroupsAreBoundedByTheGreatestDensity) {
  torch::manual_seed(seed);
  const auto model = alike(3);
  const auto same = certify(drawn_log_densities(*model, {normal(0), normal(0), normal(0)}, 2000), 0.99);
  EXPECT_NEAR(same.accuracy, 1.0 / 3, 1e-12) << "all are the first one's: one group is hit always, two never";
  EXPECT_EQ(same.delta(), 0);
  const auto apart = certify(drawn_log_densities(*model, {normal(-40), normal(0), normal(40)}, 2000), 0.99);
  EXPECT_EQ(apart.accuracy, 1);
  EXPECT_EQ(apart.upper(), 1);
}

TEST(FairCertificate, LimitsAreThoseOfTheBinomialDistribution) {
  // I_x(1, b) = 1 - (1 - x)^b, I_x(a, 1) = x^a, I_x(a, b) = 1 - I_(1-x)(b, a).
  for (double x : {0.01, 0.3, 0.77, 0.999}) {
    EXPECT_NEAR(incomplete_beta(1, 7, x), 1 - std::pow(1 - x, 7), 1e-14);
    EXPECT_NEAR(incomplete_beta(5, 1, x), std::pow(x, 5), 1e-14);
    EXPECT_NEAR(incomplete_beta(3.5, 20, x), 1 - incomplete_beta(20, 3.5, 1 - x), 1e-13);
  }
  EXPECT_NEAR(binomial_upper_limit(0, 20, 0.95), 1 - std::pow(0.05, 1 / 20.0), 1e-12);
  EXPECT_EQ(binomial_upper_limit(20, 20, 0.95), 1);
  EXPECT_EQ(binomial_lower_limit(0, 20, 0.95), 0);
  // The chance of at most 7 hits in 30 at the upper limit is 0.02.
  const double p = binomial_upper_limit(7, 30, 0.98);
  double tail = 0;
  for (int k = 0; k <= 7; ++k)
    tail += std::exp(std::lgamma(31.0) - std::lgamma(k + 1.0) - std::lgamma(31.0 - k) + k * std::log(p) +
                     (30 - k) * std::log1p(-p));
  EXPECT_NEAR(tail, 0.02, 1e-10);
  // For many trials the normal approximation.
  EXPECT_NEAR(binomial_upper_limit(500000, 1000000, 0.975), 0.5 + 1.959964 * 0.0005, 2e-6);
}

TEST(FairCertificate, CoversTheTruthAsOftenAsItSays) {
  torch::manual_seed(seed);
  const auto model = alike();
  const double truth = normal_cdf(0.5);
  int missed = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto certificate = certify(drawn_log_densities(*model, {normal(0), normal(1)}, 200), 0.9);
    missed += certificate.upper() < truth;
  }
  EXPECT_LE(missed, 32) << "of 200 at 90 % confidence, seed " << seed;  // 20 + 3 deviations
}

TEST(FairObjective, DivergenceOfAShiftIsHalfItsSquare) {
  for (double shift : {0.0, 1.0, 2.0}) {
    torch::manual_seed(seed);
    const auto model = alike();
    auto objective = objective_of(model, {{normal(0), normal(shift)}}, {.draws = 40000});
    const torch::NoGradGuard no_grad;
    EXPECT_NEAR(objective.divergence().item<double>(), shift * shift / 2, 4 * shift / std::sqrt(80000.0) + 1e-12)
        << "shift " << shift << " seed " << seed;
  }
}

TEST(FairObjective, DivergenceIsZeroAtEachPointWhenTheEncodersUndoTheDifference) {
  // p1 is p0 pulled back by T, and f1 = f0 after T.
  const auto model = alike();
  const torch::NoGradGuard no_grad;
  const auto encoder = [&](const char* name) {
    return std::dynamic_pointer_cast<Sequential>(model->named_children()[name])->layers();
  };
  const auto first = encoder("encoder0")[0], second = encoder("encoder1")[0];
  for (auto& parameter : first->parameters()) parameter.zero_();  // the identity
  const auto pulled = build_layer(second->spec());
  pulled->to(torch::kFloat64);
  copy_state(*second, *pulled);
  const auto p0 = normal(0.5, 1.3);
  const auto p1 = std::make_shared<Flow>(pulled, p0);
  p1->to(torch::kFloat64);
  torch::manual_seed(seed);
  const auto x = p1->sample(100);
  const auto [z, log_det] = model->encode(x, 1);
  const auto [back, back_log_det] = model->decode(z, 0);
  const auto own = p1->log_prob(x) - log_det, other = p0->log_prob(back) + back_log_det;
  EXPECT_LT((own - other).abs().max().item<double>(), 1e-10);
  auto objective = objective_of(model, {{p0, p1}}, {.draws = 50});
  EXPECT_LT(objective.divergence().abs().item<double>(), 1e-10);
}

TEST(FairObjective, ThreeGroupsAlikeHaveNoDivergenceAndTwoAreThePairwiseFormula) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(seed);
  auto three = objective_of(alike(3), {{normal(1), normal(1), normal(1)}}, {.draws = 50});
  EXPECT_LT(three.divergence().abs().item<double>(), 1e-10);
  const auto first = torch::randn({30, 2}, torch::kFloat64), second = torch::randn({30, 2}, torch::kFloat64);
  const auto pairwise =
      0.5 * ((first.select(1, 0) - first.select(1, 1)).mean() + (second.select(1, 1) - second.select(1, 0)).mean());
  EXPECT_NEAR(symmetrized_divergence({first, second}).item<double>(), pairwise.item<double>(), 1e-12);
}

TEST(FairObjective, WeightGrowsToGammaAndEvaluationsHaveAllOfIt) {
  torch::manual_seed(seed);
  const auto model = alike();
  auto objective =
      objective_of(model, {{normal(0), normal(2)}}, {.gamma = 0.5, .ramp_start = 2, .ramp_end = 4, .draws = 20000});
  objective.to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  const Batch batch{.x = torch::randn({40, 2}, torch::kFloat64),
                    .context = torch::arange(40).remainder(2).unsqueeze(1),
                    .label = torch::arange(40).div(2, "floor").remainder(2)};
  const double told = objective.cross_entropy(batch).item<double>();
  objective.train();
  for (double weight : {0.0, 0.0, 0.25, 0.5, 0.5})
    EXPECT_NEAR(objective.loss(batch).item<double>(), weight * 2 + (1 - weight) * told, 0.05) << "weight " << weight;
  objective.eval();
  EXPECT_NEAR(objective.loss(batch).item<double>(), 0.5 * 2 + 0.5 * told, 0.05);
}

TEST(FairObjective, DensitiesAreNotTrained) {
  const auto model = alike();
  const auto density = normal(1);
  auto objective = objective_of(model, {{normal(0), density}}, {.draws = 10});
  objective.divergence().backward();
  for (const auto& parameter : density->parameters()) EXPECT_FALSE(parameter.grad().defined());
  EXPECT_EQ(objective.parameters().size(), model->parameters().size());
}

TEST(FairObjective, RefusesWhatMakesNoSense) {
  const auto model = alike();
  const GroupDensities densities{{normal(0), normal(1)}};
  EXPECT_EQ(problem([&] { objective_of(model, densities, {.gamma = 1.5}); }), "gamma: must lie in [0, 1], got 1.5");
  EXPECT_NE(problem([&] { objective_of(model, {{normal(0)}}); }).find("2 groups"), std::string::npos);
  const auto group = torch::tensor({0, 1, 2}, torch::kLong);
  EXPECT_EQ(problem([&] {
              check_fair_rows(group, torch::tensor({0, 1, 2}, torch::kLong), {-1}, "rows");
            }),
            "rows: labels must be 0 or 1, but a row has 2");
  EXPECT_EQ(problem([&] {
              check_fair_rows(torch::tensor({0, 2}, torch::kLong), torch::tensor({0, 1}, torch::kLong), {-1}, "rows");
            }),
            "rows: group 1 of 0 to 2 has no rows");
  EXPECT_EQ(problem([&] {
              check_fair_rows(torch::tensor({0, 1}, torch::kLong), torch::tensor({0, 1}, torch::kLong), {1}, "rows");
            }),
            "rows: group 0 has no rows of label 1");
  EXPECT_NE(problem([&] { labels_of("equal_odds"); }).find("criterion"), std::string::npos);
}

TEST(FairFlow, EncodersBeginAlikeAndRowsKeepTheirPlaces) {
  torch::manual_seed(seed);
  FairFlow model({.features = 3, .groups = 3});
  model.eval();
  const torch::NoGradGuard no_grad;
  const auto x = torch::randn({50, 3});
  const auto group = torch::arange(50).remainder(3);
  const auto z = model.encode_rows(x, group);
  EXPECT_TRUE(torch::allclose(z, model.encode(x, 1).value, 1e-5, 1e-6));
  for (auto& parameter : model.named_children()["encoder2"]->parameters()) parameter.add_(0.1);
  const auto moved = model.encode_rows(x, group);
  EXPECT_TRUE(torch::allclose(moved[4], model.encode(x[4], 1).value, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(moved[5], model.encode(x[5], 2).value, 1e-5, 1e-6));
  EXPECT_EQ(model.encode_rows(x.narrow(0, 0, 0), group.narrow(0, 0, 0)).size(0), 0);
}

TEST(FairModel, DensitiesOfTooFewRowsAreRefused) {
  torch::manual_seed(seed);
  FairModel model;
  const auto x = torch::randn({59, 2}, torch::kFloat64);
  const FairRows rows{x, torch::arange(59).ge(50).to(torch::kLong), torch::arange(59).remainder(2)};
  model.scales.emplace(x, ColumnScales::Options{});
  EXPECT_EQ(problem([&] {
              fit_densities(model, {rows, {}, {}}, {.components = 1}, seed);
            }),
            "density of group 1: needs at least 10 training rows, got 9; put small groups together, or leave them out");
}

TEST(FairFlow, BeginningsDifferAsFarAsTheyAreFromTheIdentity) {
  const torch::NoGradGuard no_grad;
  torch::manual_seed(seed);
  const auto x = torch::randn({200, 2});
  const auto apart = [&](double init_scale) {
    std::vector<Tensor> z;
    for (int i = 0; i < 2; ++i) z.push_back(FairFlow({.features = 2, .init_scale = init_scale}).encode(x, 0).value);
    return (z[0] - z[1]).square().mean().sqrt().item<double>();
  };
  EXPECT_LT(apart(0.1), 0.2);
  EXPECT_GT(apart(1), 3 * apart(0.1));
  EXPECT_NE(problem([] { FairFlow({.features = 2, .init_scale = -1}); }).find("init_scale"), std::string::npos);
}

TEST(ColumnScales, PlacesOfTiesAreShareAndOrderOfTheirValues) {
  torch::manual_seed(seed);
  const auto ties = torch::tensor({1.0, 1.0, 4.0, 4.0, 4.0, 4.0, 9.0, 9.0}, torch::kFloat64);
  const auto x = torch::stack({ties, torch::arange(8).to(torch::kFloat64), torch::full({8}, 3.0, torch::kFloat64)}, 1);
  const ColumnScales quantile(x, {}), range(x, {.scaling = "range"});
  EXPECT_EQ(quantile.left_out(), std::vector<int64_t>{2});
  EXPECT_EQ(quantile.features(), 2);
  const auto wanted = torch::tensor({{0.25, 0.5}, {0.0, 0.25}, {0.75, 0.25}}, torch::kFloat64);
  const auto rows = torch::stack({torch::tensor({4.0, -7.0, 8.0}, torch::kFloat64), torch::zeros({3}, torch::kFloat64),
                                  torch::zeros({3}, torch::kFloat64)},
                                 1);
  const auto placed = quantile.place(rows);
  EXPECT_TRUE(torch::allclose(torch::stack({placed.select(1, 0), placed.select(1, 2)}, 1), wanted));
  // The smallest gap is 3, and the range with it 11.
  EXPECT_NEAR(range.place(rows)[0][0].item<double>(), 3.0 / 11, 1e-12);
  EXPECT_NEAR(range.place(rows)[0][2].item<double>(), 3.0 / 11, 1e-12);
  EXPECT_NEAR(range.place(x)[5][1].item<double>(), 5.0 / 7, 1e-12);
  EXPECT_EQ(ColumnScales(quantile.spec()).spec(), quantile.spec());
  EXPECT_NE(problem([] { ColumnScales(torch::ones({5, 1}), {}); }).find("constant"), std::string::npos);
}

TEST(ColumnScales, PointsOfTrainingRowsAreLogisticByQuantile) {
  torch::manual_seed(seed);
  const auto x = torch::stack(
      {torch::randint(5, {4000}).to(torch::kFloat64).square(), torch::randn({4000}, torch::kFloat64).exp()}, 1);
  const ColumnScales scales(x, {});
  const auto points = scales.points(scales.place(x));
  const auto place = (points.sigmoid() - 0.025) / 0.95;
  for (int64_t column : {0, 1}) {
    const auto sorted = std::get<0>(place.select(1, column).sort());
    const auto uniform = (torch::arange(4000).to(torch::kFloat64) + 0.5) / 4000;
    EXPECT_LT((sorted - uniform).abs().max().item<double>(), 0.04) << "column " << column << " seed " << seed;
  }
}

TEST(FullMixtureFit, OneComponentHasTheMomentsOfTheRows) {
  torch::manual_seed(seed);
  const auto x = torch::matmul(torch::randn({500, 3}, torch::kFloat64),
                               torch::tensor({{1.0, 0.5, 0.0}, {0.0, 2.0, 0.3}, {0.0, 0.0, 0.7}}, torch::kFloat64)) +
                 3;
  const auto fitted = fit_full_mixture(x, {.components = 1, .regularisation = 0});
  FullNormal want({.features = 3});
  want.to(torch::kFloat64);
  const torch::NoGradGuard no_grad;
  const auto centred = x - x.mean(0);
  const auto covariance = torch::matmul(centred.t(), centred) / 500;
  const auto factor = at::linalg_cholesky(covariance);
  want.named_parameters()["mean"].copy_(x.mean(0));
  want.named_parameters()["cholesky"].copy_(factor.tril(-1) + at::diag_embed(factor.diagonal().log()));
  EXPECT_LT((fitted->log_prob(x) - want.log_prob(x)).abs().max().item<double>(), 1e-7);
}

TEST(FullMixtureFit, FindsSeparateComponents) {
  torch::manual_seed(seed);
  const auto centre = torch::tensor({{-5.0, 0.0}, {5.0, 0.0}, {0.0, 6.0}}, torch::kFloat64);
  const auto x = centre.index_select(0, torch::arange(3000).remainder(3)) + torch::randn({3000, 2}, torch::kFloat64);
  const auto fitted = fit_full_mixture(x, {.components = 3});
  const torch::NoGradGuard no_grad;
  const auto truth = (-0.5 * (x.unsqueeze(1) - centre).square().sum(-1)).logsumexp(1) - std::log(6 * M_PI);
  EXPECT_NEAR((fitted->log_prob(x) - truth).mean().item<double>(), 0, 0.02) << "seed " << seed;
  EXPECT_NE(problem([&] { fit_full_mixture(x.narrow(0, 0, 2), {.components = 3}); }).find("at least as many rows"),
            std::string::npos);
}

TEST(Cells, NumbersCombinationsOfValues) {
  const auto x = torch::tensor({{0.0, 5.0}, {1.0, 7.0}, {1.0, 9.0}, {0.0, 9.0}}, torch::kFloat64);
  const Cells cells(x, {});
  EXPECT_EQ(cells.count(), 6);
  EXPECT_EQ(cells.indicators(), 5);
  EXPECT_TRUE(cells.cell_of(x).equal(torch::tensor({0, 4, 5, 2}, torch::kLong)));
  const auto hot = cells.one_hot(cells.cell_of(x));
  EXPECT_TRUE(hot[1].equal(torch::tensor({0.0f, 1.0f, 0.0f, 1.0f, 0.0f})));
  EXPECT_TRUE(Cells(cells.spec()).cell_of(x).equal(cells.cell_of(x)));
  const Cells cut(torch::arange(100).to(torch::kFloat64).unsqueeze(1), {});
  EXPECT_EQ(cut.count(), 4) << "quartiles";
  EXPECT_NE(problem([&] { Cells(x, {.most_cells = 5}); }).find("most_cells"), std::string::npos);
}

TEST(Cells, ProbabilitiesOfAutoencoderSumToOneAndFollowTheRows) {
  torch::manual_seed(seed);
  const auto first = torch::randint(3, {6000});
  const auto second = torch::where(torch::rand({6000}) < 0.8, first, torch::randint(3, {6000}));
  const auto x = torch::stack({first, second}, 1).to(torch::kFloat64);
  const Cells cells(x, {});
  const auto p = fit_cell_probabilities(cells, cells.cell_of(x), {}, 400, seed);
  EXPECT_NEAR(p.sum().item<double>(), 1, 1e-12);
  const auto seen = at::bincount(cells.cell_of(x), {}, cells.count()).to(torch::kFloat64) / 6000;
  EXPECT_LT(0.5 * (p - seen).abs().sum().item<double>(), 0.05) << "seed " << seed;
}

TEST(CellMatching, PermutationsKeepPredictedLabelsAndEncodedRowsFollowTheExactLaw) {
  torch::manual_seed(seed);
  const auto p0 = torch::rand({12}, torch::kFloat64), p1 = torch::rand({12}, torch::kFloat64);
  const auto predicted = torch::arange(12).remainder(2);
  const CellMatching matching(p0 / p0.sum(), p1 / p1.sum(), predicted);
  EXPECT_TRUE(std::get<0>(matching.keep.sort()).equal(torch::arange(12)));
  EXPECT_TRUE(predicted.index_select(0, matching.keep).equal(predicted));
  const auto latent = matching.latent(0.3);
  EXPECT_NEAR(latent[0].sum().item<double>(), 1, 1e-12);
  const auto cells = at::multinomial(matching.p0, 40000, true);
  const auto encoded = matching.encode(cells, torch::zeros({40000}, torch::kLong), 0.3);
  const auto seen = at::bincount(encoded, {}, 12).to(torch::kFloat64) / 40000;
  EXPECT_LT((seen - latent[0]).abs().max().item<double>(), 0.012) << "seed " << seed;
  EXPECT_TRUE(matching.encode(cells, torch::ones({40000}, torch::kLong), 0.3).equal(cells));
}

TEST(Classifier, HitRatesAreOfEachClass) {
  const auto predicted = torch::tensor({0, 0, 1, 1}, torch::kLong), label = torch::tensor({0, 0, 0, 1}, torch::kLong);
  EXPECT_NEAR(hit_rates(predicted, label, 2)[0].item<double>(), 2.0 / 3, 1e-12);
  EXPECT_NEAR(balanced_accuracy(predicted, label, 2), 5.0 / 6, 1e-12);
  EXPECT_NEAR(accuracy(predicted, label), 0.75, 1e-12);
}

}  // namespace
}  // namespace diffeo::testing
