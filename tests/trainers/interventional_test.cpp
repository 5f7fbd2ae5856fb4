// Interventional densities: what must hold exactly, or on average with the true nuisances.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "data/scratch.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/interventional/effects.h"
#include "diffeo/trainers/interventional/train.h"

namespace diffeo::testing {
namespace {

constexpr uint64_t seed = 23;
const auto f64 = torch::TensorOptions(torch::kFloat64);

/// N(shift, scale^2) with a learnable shift alone (`map` additive) or with a scale too (affine).
FlowPtr normal_flow(const std::string& map, double shift = 0, double scale = 1) {
  auto flow = build_flow({{"layers",
                           {{{"type", "standardize"}, {"features", 1}, {"shift", {shift}}, {"scale", {scale}}},
                            {{"type", "elementwise"}, {"features", 1}, {"map", {{"type", map}}}}}},
                          {"base", {{"type", "normal"}, {"features", 1}}}});
  flow->to(torch::kFloat64);
  return flow;
}

FlowPtr spline_flow() {
  const SeedGuard guard(seed);
  auto flow = build_flow({{"layers",
                           {{{"type", "elementwise"}, {"features", 1}, {"map", {{"type", "rq_spline"}, {"bins", 6}}}},
                            {{"type", "elementwise"}, {"features", 1}, {"map", {{"type", "affine"}}}}}},
                          {"base", {{"type", "normal"}, {"features", 1}}}});
  flow->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(0.3 * torch::randn_like(parameter));
  return flow;
}

/// X ~ N(0, 1), pi_1(X) = sigmoid(X), Y = A + X + 0.7 e, with the true nuisances as predictions.
struct Simulated {
  Study study;
  Predictions truth;
  explicit Simulated(int64_t rows, int64_t grid_points = 400) {
    const auto x = torch::randn({rows, 1}, f64);
    const auto treated = x.squeeze(1).sigmoid();
    const auto a = torch::rand({rows}, f64).lt(treated);
    study = {x, a.to(torch::kInt64), a.unsqueeze(1).to(torch::kFloat64) + x + 0.7 * torch::randn({rows, 1}, f64)};
    truth.propensity = torch::stack({1 - treated, treated}, 1);
    truth.points = torch::linspace(-8, 9, grid_points, f64).unsqueeze(1);
    const auto z = torch::linspace(-5, 5, 51, f64);
    const auto p = (-0.5 * z.square()).exp();
    std::vector<Tensor> by_treatment;
    for (double a : {0.0, 1.0}) by_treatment.push_back(deposit(a + x + 0.7 * z, p / p.sum(), truth.points.squeeze(1)));
    truth.probability = torch::stack(by_treatment, 1);
  }
};

double loss_of(const std::vector<FlowPtr>& targets, Correction correction, const Tensor& grid, const Batch& batch) {
  torch::NoGradGuard no_grad;
  return InterventionalLikelihood(targets, correction, grid).loss(batch).item<double>();
}

class Interventional : public ::testing::Test {
 protected:
  Interventional() : trace_(__FILE__, __LINE__, c10::str("seed ", seed)), guard_(seed) {}

 private:
  ::testing::ScopedTrace trace_;
  SeedGuard guard_;
};

TEST_F(Interventional, TheCorrectionHasMeanZeroWithTrueNuisances) {
  const std::vector<FlowPtr> targets{spline_flow(), normal_flow("affine", 0.4, 1.7)};
  std::vector<double> means;
  for (int i = 0; i < 60; ++i) {
    const Simulated one(2000);
    const auto rows =
        rows_of(one.truth, one.study.outcome, inverse_weights(one.truth.propensity, one.study.treatment, 1e-6));
    means.push_back(loss_of(targets, Correction::aiptw, one.truth.points, rows) -
                    loss_of(targets, Correction::plug_in, one.truth.points, rows));
  }
  const auto values = torch::tensor(means, f64);
  const double error = values.std().item<double>() / std::sqrt(60.0);
  EXPECT_LT(std::fabs(values.mean().item<double>()), 4 * error);
  EXPECT_GT(error, 0);
}

TEST_F(Interventional, WeightsOfOneAtTheOutcomesThemselvesGiveTheLikelihood) {
  const auto grid = torch::linspace(-3, 3, 61, f64).unsqueeze(1);
  const auto place = torch::randint(61, {40});
  const auto outcome = grid.index_select(0, place);
  const Predictions predictions{torch::full({40, 2}, 0.5, f64), grid,
                                torch::one_hot(place, 61).to(torch::kFloat64).unsqueeze(1).repeat({1, 2, 1})};
  const std::vector<FlowPtr> targets{spline_flow(), normal_flow("affine")};
  const auto rows = rows_of(predictions, outcome, torch::ones({40, 2}, f64));
  const double likelihood =
      -(targets[0]->log_prob(outcome).mean() + targets[1]->log_prob(outcome).mean()).item<double>();
  for (const auto correction : {Correction::aiptw, Correction::iptw, Correction::plug_in})
    EXPECT_NEAR(loss_of(targets, correction, grid, rows), likelihood, 1e-12) << name_of(correction);
}

TEST_F(Interventional, WithoutWeightsTheCorrectedLossIsThePlugInExactly) {
  const Simulated one(100);
  auto rows = rows_of(one.truth, one.study.outcome, torch::zeros({100, 2}, f64));
  rows.x[3] = INFINITY;  // a row without weight may be anything
  const std::vector<FlowPtr> targets{spline_flow(), spline_flow()};
  EXPECT_EQ(loss_of(targets, Correction::aiptw, one.truth.points, rows),
            loss_of(targets, Correction::plug_in, one.truth.points, rows));
}

/// With a saturated model of a discrete problem the three estimators are one.
TEST_F(Interventional, SaturatedNuisancesMakeAllCorrectionsEqual) {
  const int64_t rows = 400, points = 7;
  const auto x = torch::randint(2, {rows}), a = torch::rand({rows}, f64).lt(0.3 + 0.4 * x).to(torch::kInt64);
  const auto place = (torch::randint(3, {rows}) + 2 * x + 2 * a).clamp_max(points - 1);
  const auto grid = torch::linspace(-2, 2, points, f64).unsqueeze(1);
  Predictions saturated{torch::zeros({rows, 2}, f64), grid, torch::zeros({rows, 2, points}, f64)};
  for (int64_t value = 0; value < 2; ++value)
    for (int64_t treatment = 0; treatment < 2; ++treatment) {
      const auto here = x.eq(value), cell = here.logical_and(a.eq(treatment));
      ASSERT_GT(cell.sum().item<int64_t>(), 0);
      const auto share = cell.sum().to(torch::kFloat64) / here.sum();
      const auto counts = torch::bincount(place.masked_select(cell), {}, points).to(torch::kFloat64);
      saturated.propensity.index_put_({here, treatment}, share);
      saturated.probability.index_put_({here, treatment}, (counts / counts.sum()).unsqueeze(0));
    }
  const auto batch = rows_of(saturated, grid.index_select(0, place), inverse_weights(saturated.propensity, a, 1e-6));
  const std::vector<FlowPtr> targets{spline_flow(), normal_flow("affine", 0.3, 2)};
  const double plug_in = loss_of(targets, Correction::plug_in, grid, batch);
  EXPECT_NEAR(loss_of(targets, Correction::iptw, grid, batch), plug_in, 1e-12);
  EXPECT_NEAR(loss_of(targets, Correction::aiptw, grid, batch), plug_in, 1e-12);
}

/// The score of a location model is linear: its zero is the augmented inverse-propensity mean, whatever the nuisances.
TEST_F(Interventional, TheLocationModelGivesTheAugmentedMean) {
  Simulated one(300);
  one.truth.propensity = torch::softmax(torch::randn({300, 2}, f64), 1);        // wrong ones:
  one.truth.probability = torch::softmax(torch::randn({300, 2, 400}, f64), 2);  // it is algebra
  const auto weights = inverse_weights(one.truth.propensity, one.study.treatment, 0.05);
  const std::vector<FlowPtr> targets{normal_flow("additive"), normal_flow("additive")};
  InterventionalLikelihood objective(targets, Correction::aiptw, one.truth.points);
  objective.loss(rows_of(one.truth, one.study.outcome, weights)).backward();
  const auto expected = one.truth.mean();
  for (int64_t a = 0; a < 2; ++a) {
    // z = y + t, so that the mean is -t; the loss is quadratic with second derivative 1, and t starts at 0.
    const double mean = targets[a]->parameters()[0].grad().item<double>();
    const auto m = expected.select(1, a), w = weights.select(1, a);
    EXPECT_NEAR(mean, (m + w * (one.study.outcome.squeeze(1) - m)).mean().item<double>(), 1e-11);
  }
}

TEST_F(Interventional, GradientsAgreeWithFiniteDifferences) {
  const Simulated one(50);
  const auto rows =
      rows_of(one.truth, one.study.outcome, inverse_weights(one.truth.propensity, one.study.treatment, 0.05));
  const std::vector<FlowPtr> targets{spline_flow(), spline_flow()};
  InterventionalLikelihood objective(targets, Correction::aiptw, one.truth.points);
  objective.loss(rows).backward();
  torch::NoGradGuard no_grad;
  int compared = 0;
  for (auto& parameter : objective.parameters())
    for (int64_t i = 0; i < parameter.numel(); i += 3, ++compared) {
      auto value = parameter.view(-1)[i];
      const double start = value.item<double>(), step = 1e-6;
      value.fill_(start + step);
      const double above = objective.loss(rows).item<double>();
      value.fill_(start - step);
      const double below = objective.loss(rows).item<double>();
      value.fill_(start);
      EXPECT_NEAR(parameter.grad().view(-1)[i].item<double>(), (above - below) / (2 * step), 1e-6);
    }
  EXPECT_GT(compared, 10);
}

InterventionalOptions small_options(int64_t folds) {
  InterventionalOptions options;
  options.folds = folds;
  options.target_bins = 4;
  options.nuisance = {.representation = 3, .width = 8, .bins = 4};
  options.quadrature = {.grid = 60, .draws = 5};
  return options;
}

/// A study with `treatments` treatments and `outcomes` outcomes.
Study random_study(int64_t rows, int64_t treatments, int64_t outcomes) {
  const auto x = torch::randn({rows, 3});
  const auto a = torch::arange(rows, torch::kInt64).remainder(treatments);
  return {x, a, x.slice(1, 0, outcomes) + a.unsqueeze(1) + torch::randn({rows, outcomes})};
}

TEST_F(Interventional, NoGradientReachesTheNuisances) {
  const auto study = random_study(60, 2, 1);
  const auto model = InterventionalModel::for_study(study, {0, 1}, small_options(2), seed);
  const auto predictions = model->predict(study);
  EXPECT_FALSE(predictions.probability.requires_grad());
  EXPECT_FALSE(predictions.propensity.requires_grad());
  InterventionalLikelihood objective(model->targets(), Correction::aiptw, predictions.points);
  objective.loss(rows_of(predictions, study.outcome, inverse_weights(predictions.propensity, study.treatment, 0.05)))
      .backward();
  for (const auto& nuisance : model->nuisances())
    for (const auto& parameter : nuisance->parameters()) EXPECT_FALSE(parameter.grad().defined());
  for (const auto& target : model->targets())
    for (const auto& parameter : target->parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST_F(Interventional, DepositKeepsMassAndMean) {
  const auto grid = torch::linspace(-4, 6, 31, f64);
  const auto values = -4 + 10 * torch::rand({20, 9}, f64);
  const auto probability = torch::softmax(torch::randn({9}, f64), 0);
  const auto deposited = deposit(values, probability, grid);
  EXPECT_TRUE(deposited.sum(1).allclose(torch::ones({20}, f64), 0, 1e-12));
  EXPECT_TRUE(deposited.matmul(grid).allclose(values.matmul(probability), 0, 1e-12));
  EXPECT_GE(deposited.min().item<double>(), 0);
  const auto outside = deposit(torch::tensor({{-100.0, 100.0}}, f64), torch::tensor({0.3, 0.7}, f64), grid);
  EXPECT_NEAR(outside[0][0].item<double>(), 0.3, 1e-12);
  EXPECT_NEAR(outside[0][30].item<double>(), 0.7, 1e-12);
}

TEST_F(Interventional, PredictionsAreTheMomentsOfTheNuisancesDensity) {
  auto study = random_study(5, 2, 1);
  const auto shape = shape_of(study, 2);
  Nuisance nuisance(shape, {.representation = 3, .width = 8, .bins = 5});
  torch::NoGradGuard no_grad;
  for (auto& parameter : nuisance.parameters()) parameter.add_(0.3 * torch::randn_like(parameter));
  const auto grid = torch::linspace(-30, 30, 6001).unsqueeze(1);
  const auto predictions = predict(nuisance, study.covariates, grid, {});
  EXPECT_TRUE(predictions.propensity.sum(1).allclose(torch::ones({5})));
  const auto representation = nuisance.represent(study.covariates);
  for (int64_t a = 0; a < 2; ++a) {
    const auto context = nuisance.context(representation, torch::full({5}, a, torch::kInt64));
    const auto drawn = nuisance.outcome()->sample(40000, context).squeeze(-1).to(torch::kFloat64);  // (5, n)
    const auto error = drawn.std(1) / 200;
    EXPECT_TRUE((predictions.mean().select(1, a) - drawn.mean(1)).abs().lt(5 * error).all().item<bool>());
    // The points have steps in between: at most half the probability of one, 0.02, and five errors of the draws.
    const auto below = drawn.le(0.5).to(torch::kFloat64).mean(1);
    EXPECT_TRUE((predictions.cumulative(0.5).select(1, a) - below).abs().lt(0.03).all().item<bool>());
  }
}

TEST_F(Interventional, IncreasingIsTheNearestAndKeepsTheSum) {
  const auto pooled = increasing(torch::tensor({1.0, 3.0, 2.0, 2.5, 5.0, 4.0}, f64));
  EXPECT_TRUE(pooled.allclose(torch::tensor({1.0, 2.5, 2.5, 2.5, 4.5, 4.5}, f64)));
  const auto values = torch::randn({50}, f64).cumsum(0);
  const auto got = increasing(values);
  EXPECT_GE(got.diff().min().item<double>(), 0);
  EXPECT_NEAR(got.sum().item<double>(), values.sum().item<double>(), 1e-10);
  // The nearest of a convex set: no step towards another increasing sequence comes nearer.
  for (int i = 0; i < 20; ++i) {
    const auto other = std::get<0>((3 * torch::randn({50}, f64)).sort());
    EXPECT_GE(((got - values) * (other - got)).sum().item<double>(), -1e-9);
  }
}

TEST_F(Interventional, CorrectedDistributionsHaveTheAugmentedMean) {
  const Simulated one(500);
  const auto weights = inverse_weights(one.truth.propensity, one.study.treatment, 0.05);
  const auto grid = one.truth.points.squeeze(1);
  const auto expected = one.truth.mean();
  for (const double smoothing : {0.0, 1.0})
    for (const auto correction : {Correction::aiptw, Correction::plug_in, Correction::iptw}) {
      const auto got = corrected_distribution(one.truth, one.study.outcome, weights, correction, smoothing);
      EXPECT_GE(got.min().item<double>(), 0);
      EXPECT_TRUE(got.sum(1).allclose(torch::ones({2}, f64)));
      for (int64_t a = 0; a < 2; ++a) {
        const auto m = expected.select(1, a), w = weights.select(1, a), y = one.study.outcome.squeeze(1);
        const auto want = correction == Correction::plug_in ? m.mean()
                          : correction == Correction::iptw  ? (w * y).sum() / w.sum()
                                                            : (m + w * (y - m)).mean();
        // Exact but for the ends of the grid, where nearly nothing lies and [0, 1] cuts.
        EXPECT_NEAR(got[a].dot(grid).item<double>(), want.item<double>(), 2e-2) << name_of(correction);
      }
    }
}

/// Weights so large that the loss asks for a negative density: without the floor it runs off, with it it is bounded.
TEST_F(Interventional, TheFloorBoundsTheLoss) {
  Predictions predictions{torch::full({2, 2}, 0.5, f64), torch::linspace(-4, 4, 81, f64).unsqueeze(1),
                          torch::zeros({2, 2, 81}, f64)};
  predictions.probability.select(2, 80).fill_(1);  // all at 4, where rows of weight 20 take 19 times as much away
  const auto rows = rows_of(predictions, torch::zeros({2, 1}, f64), torch::full({2, 2}, 20.0, f64));
  const auto centre = torch::zeros({1}, f64), scale = torch::ones({1}, f64);
  const auto loss = [&](double floor, double deviation) {
    const std::vector<FlowPtr> narrow{normal_flow("affine", 0, deviation), normal_flow("affine", 0, deviation)};
    torch::NoGradGuard no_grad;
    return InterventionalLikelihood(narrow, Correction::aiptw, predictions.points, floor, centre, scale)
        .loss(rows)
        .item<double>();
  };
  EXPECT_LT(loss(0, 0.01), -1e6);
  EXPECT_GT(loss(0.02, 0.01), -600);
  EXPECT_NEAR(loss(1e-12, 1), loss(0, 1), 1e-6);
}

TEST_F(Interventional, ClippingIsReported) {
  const auto propensity = torch::tensor({{0.98, 0.02}, {0.5, 0.5}, {0.98, 0.02}, {0.1, 0.9}}, f64);
  const auto treatment = torch::tensor({1, 1, 0, 1}, torch::kInt64);
  const auto weights = inverse_weights(propensity, treatment, 0.05);
  EXPECT_TRUE(weights.allclose(torch::tensor({{0.0, 0.0}, {0.0, 2.0}, {1 / 0.98, 0.0}, {0.0, 1 / 0.9}}, f64)));
  EXPECT_TRUE(trimmed_share(propensity, treatment, 0.05).allclose(torch::tensor({0.0, 1.0 / 3}, f64)));
}

TEST_F(Interventional, FoldsShareOutEachTreatmentEvenly) {
  const auto treatment = torch::arange(103, torch::kInt64).remainder(3);
  const auto fold = assign_folds(treatment, 3, 4, seed);
  for (int64_t a = 0; a < 3; ++a) {
    const auto counts = torch::bincount(fold.masked_select(treatment.eq(a)), {}, 4);
    EXPECT_LE((counts.max() - counts.min()).item<int64_t>(), 1);
  }
  EXPECT_TRUE(fold.equal(assign_folds(treatment, 3, 4, seed)));
  EXPECT_ERROR(assign_folds(torch::tensor({0, 0, 0, 0, 0, 0, 1, 1, 1}, torch::kInt64), 2, 2, seed), "3 rows");
}

TEST_F(Interventional, RowsOfTrainingAreJudgedByTheNuisanceThatDidNotSeeThem) {
  const auto study = random_study(60, 2, 1);
  const auto model = InterventionalModel::for_study(study, {0, 1}, small_options(3), seed);
  for (int64_t k = 0; k < 3; ++k) {
    const auto rows = rows_for_nuisance(*model, k, 0.2, seed);
    EXPECT_EQ(rows.learn.numel() + rows.choose.numel(), 40);
    EXPECT_TRUE(model->fold().index_select(0, torch::cat({rows.learn, rows.choose})).ne(k).all().item<bool>());
  }
  const auto before = model->predict(study);
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : model->nuisances()[1]->parameters()) parameter.add_(0.5);
  }
  const auto after = model->predict(study);
  const auto moved = (after.propensity - before.propensity).abs().sum(1).gt(1e-6);
  EXPECT_TRUE(moved.equal(model->fold().eq(1)));
  auto other = study;
  other.outcome = study.outcome + 1;
  EXPECT_TRUE(model->knows(study));
  EXPECT_FALSE(model->knows(other));
  EXPECT_TRUE((model->predict(other).propensity - before.propensity).abs().sum(1).gt(1e-6).all().item<bool>());
}

TEST_F(Interventional, SeveralOutcomesAndTreatmentsTrainAndSample) {
  const auto study = random_study(240, 3, 2);
  const auto model = InterventionalModel::for_study(study, {2, 5, 9}, small_options(2), seed);
  InterventionalFit options;
  options.nuisance.steps = 60;
  options.target.steps = 150;
  options.nuisance.seed = options.target.seed = seed;
  const auto report = fit_interventional(*model, study, options);
  EXPECT_EQ(report.ended, "finished");
  EXPECT_EQ(model->place_of(9), 2);
  EXPECT_ERROR(model->place_of(3), "2, 5, 9");
  torch::NoGradGuard no_grad;
  for (int64_t a = 0; a < 3; ++a) {
    const auto drawn = outcome_values(*model->targets()[a], 4000);
    EXPECT_EQ(drawn.sizes(), at::IntArrayRef({4000, 2}));
    // x has mean 0, so that every outcome has mean a.
    EXPECT_TRUE((drawn.mean(0) - static_cast<double>(a)).abs().lt(0.6).all().item<bool>()) << drawn.mean(0);
  }
}

TEST_F(Interventional, AModelIsTheSameAfterItsFile) {
  const Scratch scratch;
  const auto study = random_study(60, 2, 1);
  const auto model = InterventionalModel::for_study(study, {0, 1}, small_options(2), seed);
  ModelFile file;
  file.spec = model->spec();
  file.state = named_state(*model);
  write_model(scratch / "model.h5", file);
  const auto read = interventional_from(read_model(scratch / "model.h5"), "model.h5");
  EXPECT_EQ(read->spec(), model->spec());
  EXPECT_TRUE(read->knows(study));
  EXPECT_TRUE(read->predict(study).probability.equal(model->predict(study).probability));
  torch::NoGradGuard no_grad;
  EXPECT_TRUE(read->targets()[1]->log_prob(study.outcome).equal(model->targets()[1]->log_prob(study.outcome)));
  file.state.pop_back();
  write_model(scratch / "model.h5", file);
  EXPECT_ERROR(interventional_from(read_model(scratch / "model.h5"), "model.h5"), "is missing");
  file.spec = {{"type", "flow"}};
  EXPECT_ERROR(interventional_from(file, "model.h5"), "no model of `diffeo intervene train`");
}

/// A run that is stopped in any stage and goes on ends where it would have ended.
TEST_F(Interventional, AStoppedRunGoesOnToTheSameEnd) {
  const auto study = random_study(80, 2, 1);
  InterventionalFit options;
  options.nuisance = {.batch_size = 16, .steps = 12, .seed = seed};
  options.target = {.batch_size = 32, .steps = 12, .average = 0.9, .seed = seed};
  const auto made = [&] {
    torch::manual_seed(seed);
    return InterventionalModel::for_study(study, {0, 1}, small_options(2), seed);
  };
  const auto whole = made();
  fit_interventional(*whole, study, options);
  for (const int stop_after : {5, 17, 30}) {
    SCOPED_TRACE(stop_after);
    const auto first = made();
    int steps = 0;
    InterventionalHooks hooks;
    hooks.stop = [&] { return ++steps >= stop_after; };
    const auto stopped = fit_interventional(*first, study, options, hooks);
    ASSERT_EQ(stopped.ended, "interrupted");
    EXPECT_EQ(stopped.position.stage, stop_after / 12);
    fit_interventional(*first, study, options, {}, &stopped.position);
    const auto got = named_state(*first), want = named_state(*whole);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].second.equal(want[i].second)) << want[i].first;
  }
}

/// A model whose densities are known: N(0, 1) and N(delta, 1), of outcomes that depend on nothing.
struct Known {
  Study study;
  InterventionalModelPtr model;
  explicit Known(double delta, int64_t rows = 4000) {
    const auto a = torch::arange(rows, torch::kInt64).remainder(2);
    study = {torch::randn({rows, 1}, f64), a, torch::randn({rows, 1}, f64) + delta * a.unsqueeze(1)};
    auto options = small_options(1);
    options.nuisance.bins = 0;
    model = InterventionalModel::for_study(study, {0, 1}, options, seed);
    model->to(torch::kFloat64);
    const double shift = model->options().outcome_shift[0], scale = model->options().outcome_scale[0];
    torch::NoGradGuard no_grad;
    for (int64_t treatment = 0; treatment < 2; ++treatment)
      for (auto& item : model->targets()[treatment]->named_parameters())
        if (item.key().find("layers.2") != std::string::npos || item.value().numel() == 2) {
          // z = e^s (y - shift) / scale + t
          auto parameters = item.value().view(-1);
          parameters[0].fill_(std::log(scale));
          parameters[1].fill_(shift - delta * static_cast<double>(treatment));
        }
  }
};

TEST_F(Interventional, EffectsOfKnownDensities) {
  const Known one(1.0);
  {  // the parameters are what the comment above says: an honest test of the test
    torch::NoGradGuard no_grad;
    const auto y = torch::tensor({{0.3}, {1.7}}, f64);
    const auto want = -0.5 * (y.squeeze(1) - 1).square() - 0.5 * std::log(2 * M_PI);
    ASSERT_TRUE(one.model->targets()[1]->log_prob(y).allclose(want, 0, 1e-6));
  }
  const Effects effects(*one.model, one.study);
  const auto average = effects.average(1, 0);
  EXPECT_NEAR(average.density, 1, 1e-4);
  // Weights of about 2: the error is that of a difference of two means of 2000 rows, sqrt(2 / 2000) = 0.0316.
  EXPECT_NEAR(average.standard_error, 0.0316, 0.006);
  EXPECT_NEAR(average.one_step, 1, 5 * average.standard_error);
  for (const double level : {0.1, 0.5, 0.9}) {
    const auto effect = effects.quantile(level, 1, 0);
    EXPECT_NEAR(effect.density, 1, 1e-3);
    EXPECT_NEAR(effect.one_step, 1, 5 * effect.standard_error);
    EXPECT_NEAR(effects.quantile(level, 0, 1).one_step, -effect.one_step, 1e-9);
  }
  // sup F_0 - F_1 is at 1/2: 2 Phi(1/2) - 1; F_1 is nowhere above F_0.
  const auto lower = effects.benefit_lower(0, 1, 0), upper = effects.benefit_upper(0, 1, 0);
  EXPECT_NEAR(lower.density, 2 * 0.6914624612740131 - 1, 2e-3);
  EXPECT_NEAR(upper.density, 1, 2e-3);
  EXPECT_GT(lower.standard_error, 0.001);
  EXPECT_NEAR(lower.one_step, lower.density, 5 * lower.standard_error);
  // At a threshold of 1 the difference of the marginals vanishes: nothing is known.
  EXPECT_NEAR(effects.benefit_lower(1, 1, 0).density, 0, 2e-3);
  EXPECT_NEAR(effects.benefit_upper(1, 1, 0).density, 1, 2e-3);
  EXPECT_NEAR(effects.benefit_upper(3, 1, 0).density, 1 - (2 * 0.8413447460685429 - 1), 2e-3);
  EXPECT_ERROR(effects.quantile(1, 1, 0), "between 0 and 1");
}

TEST_F(Interventional, BootstrapMeansAreWeightedMeansWithTheSameWeightsForAll) {
  const auto scores = torch::randn({5000, 3}, f64);
  const MultiplierBootstrap bootstrap(400, seed);
  const auto means = bootstrap.means(scores);
  ASSERT_EQ(means.sizes(), at::IntArrayRef({401, 3}));
  EXPECT_TRUE(means[0].allclose(scores.mean(0)));
  EXPECT_TRUE(bootstrap.means(torch::ones({5000, 1}, f64)).allclose(torch::ones({401, 1}, f64))) << "weights sum to 1";
  // A linear map of the scores is one of the means: the weights are the same.
  const auto mixed = bootstrap.means(scores.matmul(torch::tensor({{2.0}, {0.0}, {-1.0}}, f64)));
  EXPECT_TRUE(mixed.squeeze(1).allclose(2 * means.select(1, 0) - means.select(1, 2)));
  EXPECT_NEAR(means.slice(0, 1).select(1, 0).std().item<double>() * std::sqrt(5000.0), 1, 4 / std::sqrt(800.0));
  EXPECT_ERROR(MultiplierBootstrap(1, seed), "at least 2");
}

TEST_F(Interventional, DistributionFunctionsAreReadBothWays) {
  const auto points = torch::tensor({-1.0, 0.0, 2.0, 3.0}, f64);
  // The second goes down between 0 and 2, which increasing() makes 0.4 on both.
  const DistributionFunctions two(points, torch::tensor({{0.0, 0.5, 0.75, 1.0}, {-0.1, 0.5, 0.3, 1.2}}, f64));
  EXPECT_TRUE(two.at(torch::tensor({-5.0, -0.5, 1.0, 7.0}, f64))
                  .allclose(torch::tensor({{0.0, 0.25, 0.625, 1.0}, {0.0, 0.2, 0.4, 1.0}}, f64)));
  EXPECT_TRUE(two.quantile(0.625).allclose(torch::tensor({1.0, 2.375}, f64)));
  EXPECT_TRUE(two.quantile(0.999).allclose(torch::tensor({2.996, 2.0 + 0.599 / 0.6}, f64)));
  EXPECT_ERROR(DistributionFunctions(points, torch::zeros({2, 3}, f64)), "(R, Q)");
}

/// Intervals of 90 % hold the truth in about as many studies, by influence functions and by the bootstrap, with a
/// treatment that depends on the covariate.
TEST_F(Interventional, IntervalsHoldTheTruthAsOftenAsTheySay) {
  constexpr int studies = 200;
  const double deviation = std::sqrt(1.49);
  const std::vector<FlowPtr> targets{normal_flow("affine", 0, deviation), normal_flow("affine", 1, deviation)};
  // P(Y[1] - Y[0] > 0) is at least 2 Phi(1 / (2 deviation)) - 1.
  const double least = std::erf(0.5 / deviation / std::sqrt(2.0));
  const std::vector<std::pair<std::string, double>> truths{
      {"average", 1}, {"quantile 0.25", 1}, {"quantile 0.9", 1}, {"benefit", least}};
  std::map<std::string, int> by_influence, by_bootstrap;
  for (int i = 0; i < studies; ++i) {
    const Simulated one(500, 200);
    Effects effects(targets, one.truth, one.study, 0.01);
    const auto count = [&](std::map<std::string, int>& hits) {
      const std::vector<Effect> found{effects.average(1, 0), effects.quantile(0.25, 1, 0), effects.quantile(0.9, 1, 0),
                                      effects.benefit_lower(0, 1, 0)};
      for (size_t k = 0; k < found.size(); ++k) {
        const auto [lower, upper] = found[k].interval(0.9);
        hits[truths[k].first] += lower <= truths[k].second && truths[k].second <= upper;
      }
    };
    count(by_influence);
    effects.bootstrap(200, seed + static_cast<uint64_t>(i));
    count(by_bootstrap);
  }
  // 180 expected; 160 and 196 are 4.7 and 3.8 deviations off.
  for (const auto& [name, truth] : truths) {
    std::printf("of %d studies: %s %d by influence, %d by bootstrap\n", studies, name.c_str(), by_influence[name],
                by_bootstrap[name]);
    EXPECT_GE(by_influence[name], 160) << name;
    EXPECT_LE(by_influence[name], 196) << name;
    EXPECT_GE(by_bootstrap[name], 160) << name;
    EXPECT_LE(by_bootstrap[name], 196) << name;
  }
}

}  // namespace
}  // namespace diffeo::testing
