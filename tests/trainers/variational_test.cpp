// Training against a target: what the two divergences and their estimators promise, and what they refuse.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/trainers/forward_kl.h"
#include "diffeo/trainers/path_kl.h"
#include "diffeo/trainers/reverse_kl.h"
#include "trainers/rows.h"

namespace diffeo::testing {
namespace {

constexpr int64_t seed = 21;

/// log p(x) = -x1^4 / 4 + x1^2 / 2 - x2^2, or with a fault from the second call on.
class Wells : public LogDensity {
 public:
  explicit Wells(int64_t features = 2, double fault = 0) : LogDensity(Space::reals(features)), fault_(fault) {}

 private:
  Tensor evaluate(const Tensor& x) override {
    const auto first = x.select(-1, 0);
    return -0.25 * first.pow(4) + 0.5 * first.square() - x.select(-1, 1).square();
  }
  Sloped evaluate_with_gradient(const Tensor& x) override {
    const auto first = x.select(-1, 0);
    auto gradient = torch::zeros_like(x);
    gradient.select(-1, 0).copy_(first - first.pow(3));
    gradient.select(-1, 1).copy_(-2 * x.select(-1, 1));
    return {evaluate(x), fault_ == 0 ? gradient : gradient.masked_fill(x.select(-1, 0).unsqueeze(-1) > 0, fault_)};
  }
  double fault_;
};

/// A normal whose mean is a buffer, so that it has a dtype of its own.
class Shifted : public LogDensity {
 public:
  Shifted() : LogDensity(Space::reals(2)), mean_(register_buffer("mean", torch::tensor({0.5f, -0.25f}))) {}

 private:
  Tensor evaluate(const Tensor& x) override {
    check(x.scalar_type() == mean_.scalar_type(), "a target in ", mean_.scalar_type(), ", points in ", x.scalar_type());
    return -0.5 * (x - mean_).square().sum(-1);
  }
  Tensor mean_;
};

FlowPtr flow_of(const std::string& layers, const Json& base = {{"type", "normal"}, {"features", 2}}) {
  torch::manual_seed(seed);
  auto flow = build_flow({{"type", "flow"}, {"layers", Json::parse(layers)}, {"base", base}});
  flow->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.2);
  return flow;
}

const std::string couplings = R"([{"type": "coupling", "features": 2, "net": {"width": 8, "activation": "tanh"}},
                                  {"type": "actnorm", "features": 2},
                                  {"type": "coupling", "features": 2, "flip": true, "net": {"width": 8}}])";
const std::string autoregressive = R"([{"type": "autoregressive", "features": 2, "net": {"width": 8}},
                                       {"type": "permutation", "features": 2},
                                       {"type": "autoregressive", "features": 2, "net": {"width": 8},
                                        "map": {"type": "rq_spline", "bins": 4}}])";

LogDensityPtr wells(double fault = 0) { return std::make_shared<Wells>(2, fault); }

Batch points(int64_t rows) {
  torch::manual_seed(seed + 1);
  return {.x = torch::randn({rows, 2}, torch::kFloat64)};
}

Tensor gradient(Objective& objective, const Batch& batch) {
  torch::manual_seed(seed + 2);
  std::vector<Tensor> flat;
  const auto parameters = objective.parameters();
  const auto found = torch::autograd::grad({objective.loss(batch)}, parameters, {}, {}, false, true);
  for (size_t i = 0; i < found.size(); ++i)
    flat.push_back((found[i].defined() ? found[i] : torch::zeros_like(parameters[i])).flatten());
  return torch::cat(flat);
}

double loss(Objective& objective, const Batch& batch) {
  torch::manual_seed(seed + 3);
  return objective.loss(batch).item<double>();
}

void expect_close(const Tensor& got, const Tensor& want, double tolerance = 1e-10) {
  EXPECT_TRUE(torch::allclose(got, want, tolerance, tolerance)) << got << "\n" << want;
}

template <class Call>
void expect_error(Call&& call, const std::vector<std::string>& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    for (const auto& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "'" << word << "' is not in: " << error.what();
  }
}

TEST(Variational, OnePassGivesWhatTwoDo) {
  SCOPED_TRACE(c10::str("seed ", seed));
  const Json learned = {{"type", "normal"}, {"features", 2}, {"trainable", true}};
  for (const auto& flow : {flow_of(couplings), flow_of(autoregressive), flow_of(couplings, learned)}) {
    SCOPED_TRACE(flow->spec().dump());
    ReverseKl one(flow, wells(), {.estimator = "path"}), two(flow, wells(), {.estimator = "path_two_pass"}),
        plain(flow, wells(), {.estimator = "reparametrised"});
    const auto batch = points(32);
    expect_close(gradient(one, batch), gradient(two, batch));
    EXPECT_NEAR(loss(one, batch), loss(plain, batch), 1e-12);
    EXPECT_NEAR(loss(two, batch), loss(plain, batch), 1e-12);
    ForwardKl there(flow, wells(), {.estimator = "path"}), and_back(flow, wells(), {.estimator = "path_two_pass"}),
        likelihood(flow, wells(), {.estimator = "maximum_likelihood"});
    expect_close(gradient(there, batch), gradient(and_back, batch));
    EXPECT_NEAR(loss(there, batch), loss(likelihood, batch), 1e-12);
    EXPECT_NEAR(loss(and_back, batch), loss(likelihood, batch), 1e-12);
  }
}

TEST(Variational, EstimatorsAgreeOnAverage) {
  SCOPED_TRACE(c10::str("seed ", seed));
  const auto flow = flow_of(couplings);
  ReverseKl path(flow, wells(), {.estimator = "path"}), plain(flow, wells(), {.estimator = "reparametrised"});
  Tensor sum, squares;
  const int batches = 300;
  for (int i = 0; i < batches; ++i) {
    const auto draws = points(200);  // as many, and other random numbers in each turn
    const auto state = seed + 100 + i;
    const auto of = [&](Objective& objective) {
      torch::manual_seed(state);
      std::vector<Tensor> flat;
      for (const auto& g : torch::autograd::grad({objective.loss(draws)}, flow->parameters(), {}, {}, false, true))
        flat.push_back(g.flatten());
      return torch::cat(flat);
    };
    const auto difference = of(plain) - of(path);
    sum = i == 0 ? difference : sum + difference;
    squares = i == 0 ? difference.square() : squares + difference.square();
  }
  const auto mean = sum / batches, error = ((squares / batches - mean.square()) / (batches - 1)).sqrt();
  const auto z = mean / error.clamp_min(1e-12);
  EXPECT_LT(z.square().mean().sqrt().item<double>(), 1.5);
  EXPECT_GT(error.max().item<double>(), 1e-6) << "the two estimators are the same";
}

TEST(Variational, RowsCountByTheirWeights) {
  const auto flow = flow_of(couplings);
  auto batch = points(8);
  const auto repeated = Batch{.x = torch::cat({batch.x.slice(0, 0, 4), batch.x.slice(0, 0, 2)})};
  batch.weight = torch::tensor({2., 2., 1., 1., 0., 0., 0., 0.}, torch::kFloat64);
  for (const auto* estimator : {"path", "path_two_pass", "maximum_likelihood"}) {
    ForwardKl objective(flow, wells(), {.estimator = estimator});
    expect_close(gradient(objective, batch), gradient(objective, repeated));
    EXPECT_NEAR(loss(objective, batch), loss(objective, repeated), 1e-12);
  }
}

TEST(Variational, TheTargetGrowsToItsFullSize) {
  const auto flow = flow_of(couplings);
  ReverseKl objective(flow, wells(), {.estimator = "path", .anneal = 4, .anneal_from = 0.2});
  const auto batch = points(64);
  std::vector<double> losses;
  for (int i = 0; i < 6; ++i) losses.push_back(loss(objective, batch));
  objective.eval();
  const double full = loss(objective, batch);
  EXPECT_EQ(loss(objective, batch), full) << "evaluations count as training";
  // loss = a - beta b with beta 0.2, 0.4, 0.6, 0.8, 1, 1.
  const double b = (losses[0] - full) / 0.8;
  EXPECT_GT(std::abs(b), 0.1);
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(losses[i], full + (1 - std::min(0.2 + 0.2 * i, 1.0)) * b, 1e-10) << i;
}

TEST(Variational, TheTargetGoesWhereTheFlowIs) {
  const auto flow = flow_of(couplings);
  const auto target = std::make_shared<Shifted>();
  ReverseKl reverse(flow, target, {});
  ForwardKl forward(flow, target, {});
  PathKl paths(flow, target, {});
  std::vector<double> losses;
  for (const auto dtype : {torch::kFloat64, torch::kFloat32, torch::kFloat64}) {
    flow->to(dtype);
    const Batch batch{.x = points(16).x.to(dtype)};
    for (Objective* objective : std::vector<Objective*>{&reverse, &forward, &paths}) {
      EXPECT_EQ(objective->loss(batch).scalar_type(), dtype);
      EXPECT_EQ(gradient(*objective, batch).scalar_type(), dtype);
      torch::NoGradGuard no_grad;
      EXPECT_EQ(objective->loss(batch).scalar_type(), dtype);
    }
    losses.push_back(loss(forward, batch));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-4);
  EXPECT_NEAR(losses[1], losses[2], 1e-4);
}

FitOptions fit_options() {
  return {.batch_size = 32, .steps = 12, .learning_rate = 1e-2, .checkpoint_seconds = 0, .seed = 5};
}

TEST(Variational, ARunGoesOnWithItsTemperature) {
  const auto run = [](int stop_after) {
    const auto flow = flow_of(couplings);
    ReverseKl objective(flow, wells(), {.anneal = 10});
    const auto train = no_data(5 * 32), valid = no_data(100);
    int steps = 0;
    FitHooks hooks;
    if (stop_after > 0) hooks.stop = [&] { return ++steps == stop_after; };
    auto report = fit(objective, *train, valid.get(), fit_options(), hooks);
    if (report.ended == "interrupted") {
      const auto again = flow_of(couplings);
      ReverseKl resumed(again, wells(), {.anneal = 10});
      report = fit(resumed, *train, valid.get(), fit_options(), {}, &report.state);
      return std::pair{named_state(resumed), report};
    }
    return std::pair{named_state(objective), report};
  };
  const auto [whole, whole_report] = run(0);
  const auto [parts, parts_report] = run(7);
  EXPECT_EQ(parts_report.ended, "steps");
  EXPECT_TRUE(same_bits(parts, whole));
  EXPECT_TRUE(same_bits(parts_report.state.tensors, whole_report.state.tensors));
  EXPECT_LT(whole_report.best_valid_loss, 5);
}

TEST(Variational, NoDataIsRowsOfNothing) {
  const auto data = no_data(70);
  EXPECT_EQ(data->rows(), 70);
  auto stream = data->shuffled(32, 1, 0);
  std::vector<int64_t> sizes;
  for (Batch batch; stream->next(batch);) {
    EXPECT_EQ(batch.x.numel(), 0);
    sizes.push_back(batch.x.size(0));
  }
  EXPECT_EQ(sizes, (std::vector<int64_t>{32, 32, 6}));
  EXPECT_THROW(no_data(-1), Error);
}

TEST(Variational, WhatCannotBeIsRefusedInWords) {
  const auto flow = flow_of(couplings);
  const auto wide = std::make_shared<Wells>(4);
  expect_error([&] { ReverseKl(flow, wide, {}); },
               {"reverse_kl", "the target lives on (*batch, 4)", "the flow on (*batch, 2)"});
  expect_error([&] { ForwardKl(flow, wide, {}); }, {"forward_kl", "(*batch, 4)", "(*batch, 2)"});
  expect_error([&] { ReverseKl(flow, {}); }, {"target", "reverse_kl needs a target"});
  expect_error([&] { ForwardKl(flow, {}); }, {"target", "forward_kl needs a target"});
  expect_error([&] { ReverseKl(flow, {.target = {{"type", "no_such"}}}); }, {"target/type", "no_such"});
  expect_error([&] { ReverseKl(flow, wells(), {.estimator = "maximum_likelihood"}); }, {"estimator", "reparametrised"});
  expect_error([&] { ForwardKl(flow, wells(), {.estimator = "reparametrised"}); }, {"estimator", "maximum_likelihood"});
  expect_error([&] { ReverseKl(flow, wells(), {.anneal = -1}); }, {"anneal", "-1"});
  expect_error([&] { ReverseKl(flow, wells(), {.anneal_from = 0}); }, {"anneal_from", "(0, 1]"});

  const auto conditional = flow_of(R"([{"type": "coupling", "features": 2, "context": 3}])");
  expect_error([&] { ReverseKl(conditional, wells(), {}); }, {"context of 3", "target has none"});
  const auto mixture = flow_of(couplings, {{"type", "mixture"}, {"features", 2}});
  expect_error([&] { ReverseKl(mixture, wells(), {}); }, {"base mixture", "do not depend on"});
  ForwardKl learns_a_mixture(mixture, wells(), {});  // whose points are given
  EXPECT_TRUE(gradient(learns_a_mixture, points(8)).isfinite().all().item<bool>());

  const std::string normalised = R"([{"type": "batch_norm", "features": 2}, {"type": "coupling", "features": 2}])";
  expect_error([&] { ReverseKl(flow_of(normalised), wells(), {}); }, {"layers/0", "batch_norm", "actnorm"});
  const std::string dropping = R"([{"type": "coupling", "features": 2, "net": {"dropout": 0.1}}])";
  expect_error([&] { ForwardKl(flow_of(dropping), wells(), {}); }, {"layers/0/net/dropout", "dropout"});
  ForwardKl(flow_of(dropping), wells(), {.estimator = "maximum_likelihood"});
}

TEST(Variational, AGradientThatIsNotFiniteIsNamed) {
  for (const double fault : {std::nan(""), HUGE_VAL}) {
    ReverseKl reverse(flow_of(couplings), wells(fault), {});
    expect_error([&] { reverse.loss(points(64)); }, {"reverse_kl", "gradient of the target", "not finite at row"});
    ForwardKl forward(flow_of(couplings), wells(fault), {});
    expect_error([&] { forward.loss(points(64)); }, {"forward_kl", "gradient of the target", "not finite at row"});
  }
}

TEST(Variational, ObjectivesSayWhetherTheyReadData) {
  for (const auto* entry : all_objectives())
    EXPECT_EQ(entry->draws_own_points, entry->name == "reverse_kl") << entry->name;
}

}  // namespace
}  // namespace diffeo::testing
