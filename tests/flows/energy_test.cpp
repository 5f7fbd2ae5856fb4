// A flow as an energy-based model: which log-determinants are left out, and that nothing else is.
#include "diffeo/flows/energy.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/constant_log_det_guard.h"

namespace diffeo::testing {
namespace {

constexpr int64_t features = 4;

Json layer(const char* type, Json options = Json::object()) {
  Json spec = {{"type", type}, {"features", features}};
  spec.update(options);
  return spec;
}

const Json constant = layer("dense_linear", {{"start", "rotation"}}), scale = layer("actnorm"),
           coupling = layer("coupling", {{"net", {{"width", 8}}}}),
           bent = layer("elementwise", {{"map", {{"type", "smooth_leaky_relu"}}}});

Json nested(const std::vector<Json>& layers) { return {{"type", "sequential"}, {"layers", layers}}; }
Json inverse(const Json& spec) { return {{"type", "inverse"}, {"layer", spec}}; }

FlowPtr flow_of(const std::vector<Json>& layers, uint64_t seed = 1) {
  torch::manual_seed(seed);
  auto flow =
      build_flow({{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", features}}}});
  flow->to(torch::kFloat64);
  torch::NoGradGuard no_grad;
  for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.2);
  flow->eval();
  return flow;
}

std::vector<std::vector<Json>> several_flows() {
  return {{constant},
          {coupling},
          {constant, bent, constant},
          {nested({scale, constant}), coupling},
          {nested({scale, nested({coupling, constant}), bent}), inverse(constant), inverse(nested({constant, bent}))}};
}

TEST(Energy, WithItsNormaliserIsTheLogDensity) {
  for (const auto& layers : several_flows()) {
    const auto flow = flow_of(layers);
    Energy energy(flow);
    const auto x = torch::randn({3, 5, features}, torch::kFloat64);
    EXPECT_TRUE(torch::allclose(-energy.energy(x) - energy.log_normaliser(), flow->log_prob(x), 1e-12, 1e-12));
    EXPECT_TRUE(torch::equal(energy.log_prob(x), -energy.energy(x)));
  }
}

TEST(Energy, LeavesOutExactlyTheConstantLogDets) {
  // One layer after another, each by what its traits say.
  const auto flow = flow_of({nested({scale, coupling}), constant, bent, inverse(scale)});
  Energy energy(flow);
  const auto x = torch::randn({6, features}, torch::kFloat64);
  const auto point = torch::randn({features}, torch::kFloat64);
  const auto normaliser = energy.log_normaliser();
  const auto parts = {flow->layers()->named_children()["0"], flow->layers()->named_children()["1"],
                      flow->layers()->named_children()["2"], flow->layers()->named_children()["3"]};
  Tensor constants = torch::zeros({}, torch::kFloat64);
  for (const auto& part : parts) {
    auto& one = dynamic_cast<Layer&>(*part);
    const auto log_det = one.forward(point).log_det;
    if (one.traits().constant_log_det) constants = constants + log_det;
    if (one.spec()["type"] == "sequential") {
      auto& first = dynamic_cast<Layer&>(*one.children()[0]);
      EXPECT_TRUE(first.traits().constant_log_det);
      constants = constants + first.forward(point).log_det;
    }
  }
  EXPECT_NEAR(normaliser.item<double>(), -constants.item<double>(), 1e-12);
}

TEST(Energy, TheScoreIsThatOfTheLogDensityToTheBit) {
  for (const auto dtype : {torch::kFloat32, torch::kFloat64})
    for (const auto& layers : several_flows()) {
      const auto flow = flow_of(layers);
      flow->to(dtype);
      Energy energy(flow);
      const auto x = torch::randn({7, features}, dtype).requires_grad_();
      const auto want = torch::autograd::grad({flow->log_prob(x).sum()}, {x})[0];
      EXPECT_TRUE(torch::equal(energy.score(x.detach()), want));
      EXPECT_TRUE(torch::equal(energy.log_prob_and_gradient(x.detach()).gradient, want));
    }
}

/// The derivatives of the sum of some numbers by a flow's parameters, 0 where there are none.
std::vector<Tensor> slopes_of(const Tensor& numbers, const std::vector<Tensor>& parameters) {
  auto found = torch::autograd::grad({numbers.sum()}, parameters, {}, true, false, true);
  for (size_t i = 0; i < found.size(); ++i)
    if (!found[i].defined()) found[i] = torch::zeros_like(parameters[i]);
  return found;
}

void expect_close(const std::vector<Tensor>& ours, const std::vector<Tensor>& want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i], want[i], 1e-9, 1e-11)) << i;
}

TEST(Energy, AroundPointsIsTheEnergyThere) {
  auto without_bias = constant;
  without_bias["bias"] = false;
  auto all = several_flows();
  all.push_back({constant, without_bias, bent, constant});
  for (const auto& layers : all) {
    const auto flow = flow_of(layers);
    Energy energy(flow);
    const auto x = torch::randn({2, 3, features}, torch::kFloat64).requires_grad_(),
               step = torch::randn({2, 3, features}, torch::kFloat64).requires_grad_();
    const auto ours = energy.energies_around(x, step);
    const auto want = torch::stack({energy.energy(x + step), energy.energy(x - step), energy.energy(x)});
    EXPECT_TRUE(torch::allclose(ours, want, 1e-12, 1e-12));
    auto asked = flow->parameters();
    asked.push_back(x);
    asked.push_back(step);
    const auto weights = torch::randn({3, 2, 3}, torch::kFloat64);
    expect_close(slopes_of(ours * weights, asked), slopes_of(want * weights, asked));
  }
}

TEST(Energy, SlicesAreSecondDerivativesAlongDirections) {
  for (const auto& layers : several_flows()) {
    const auto flow = flow_of(layers);
    Energy energy(flow);
    const auto x = torch::randn({5, features}, torch::kFloat64), v = torch::randn({2, 5, features}, torch::kFloat64);
    const auto [score, curvatures] = energy.slices(x, v, {}, true);
    EXPECT_TRUE(torch::allclose(score, energy.score(x), 1e-12, 1e-12));
    const double step = 1e-4;
    const auto want = ((energy.score(x + step * v) - energy.score(x - step * v)) * v).sum(-1) / (2 * step);
    EXPECT_TRUE(torch::allclose(curvatures, want, 1e-6, 1e-6));
    const auto plain = energy.slices(x, v);
    EXPECT_FALSE(plain.score.requires_grad() || plain.curvatures.requires_grad());
    EXPECT_TRUE(torch::allclose(plain.curvatures, curvatures, 1e-12, 1e-12));
    // The parameters' derivatives, against those of the plain way: the graph begins at the points.
    const auto point = x.clone().requires_grad_();
    const auto slope = torch::autograd::grad({-energy.energy(point).sum()}, {point}, {}, true, true)[0];
    std::vector<Tensor> along;
    for (int64_t k = 0; k < 2; ++k)
      along.push_back((torch::autograd::grad({(slope * v[k]).sum()}, {point}, {}, true, true)[0] * v[k]).sum(-1));
    expect_close(slopes_of(0.5 * score.square().sum(-1) + curvatures.mean(0), flow->parameters()),
                 slopes_of(0.5 * slope.square().sum(-1) + torch::stack(along).mean(0), flow->parameters()));
  }
}

TEST(Energy, TheNormaliserIsLearnable) {
  const auto flow = flow_of({constant, bent, constant});
  Energy energy(flow);
  const auto x = torch::randn({5, features}, torch::kFloat64);
  const auto parameters = flow->parameters();
  const auto ours = torch::autograd::grad({(energy.energy(x) + energy.log_normaliser()).sum()}, parameters);
  const auto want = torch::autograd::grad({-flow->log_prob(x).sum()}, parameters);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::allclose(ours[i], want[i], 1e-11, 1e-11));
}

TEST(Energy, AfterTheFirstLayersTheRestIsTheEnergy) {
  Json standard = layer("standardize", {{"shift", {1.0, 2.0, 3.0, 4.0}}, {"scale", {2.0, 2.0, 2.0, 0.5}}});
  const auto flow = flow_of({standard, nested({coupling, constant})});
  EXPECT_EQ(fixed_layers(*flow), 1);
  Energy whole(flow), rest(flow, 1);
  const auto x = torch::randn({5, features}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(rest.energy(rest.enter(x)), whole.energy(x), 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(rest.leave(rest.enter(x)), x, 1e-12, 1e-12));
  EXPECT_NEAR((whole.log_normaliser() - rest.log_normaliser()).item<double>(), std::log(4.0), 1e-12);
  EXPECT_THROW(Energy(flow, 3), Error);
  EXPECT_EQ(rest.draw(9).sizes(), at::IntArrayRef({9, features}));
}

TEST(Energy, DrawsAreThoseOfTheFlow) {
  const auto flow = flow_of({constant, bent, constant});
  Energy energy(flow);
  torch::manual_seed(5);
  const auto ours = energy.draw(6);
  torch::manual_seed(5);
  EXPECT_TRUE(torch::allclose(ours, flow->sample(6), 1e-12, 1e-12));
}

TEST(Energy, TakesTheContextOfItsFlow) {
  auto conditional = coupling;
  conditional["context"] = 2;
  torch::manual_seed(6);
  const auto flow = std::make_shared<Flow>(build_layer(nested({constant, conditional})),
                                           build_distribution({{"type", "normal"}, {"features", features}}), 3,
                                           NetOptions{.width = 8});
  flow->to(torch::kFloat64);
  Energy energy(flow);
  const auto x = torch::randn({5, features}, torch::kFloat64), c = torch::randn({5, 3}, torch::kFloat64);
  EXPECT_TRUE(torch::allclose(-energy.energy(x, c) - energy.log_normaliser(), flow->log_prob(x, c), 1e-12, 1e-12));
  EXPECT_THROW(energy.log_prob(x), Error);
}

TEST(ConstantLogDetGuard, EndsWithItsScopeAndKnowsThreeLevels) {
  const auto one = flow_of({constant})->layers();
  const auto x = torch::randn({2, features}, torch::kFloat64);
  const auto log_det = [&] { return one->forward(x).log_det[0].item<double>(); };
  const double all = log_det();
  EXPECT_NE(all, 0);
  {
    const ConstantLogDetGuard out;
    EXPECT_EQ(log_det(), 0);
    {
      ConstantLogDetGuard collect(ConstantLogDetGuard::Mode::collect);
      EXPECT_EQ(log_det(), 0);
      EXPECT_EQ(collect.collected()[0].item<double>(), all);
      const ConstantLogDetGuard::Suspended suspended;
      EXPECT_EQ(log_det(), all);
    }
    EXPECT_EQ(log_det(), 0);
    EXPECT_EQ(one->inverse(x).log_det[0].item<double>(), 0);
  }
  EXPECT_EQ(log_det(), all);
}

TEST(ConstantLogDetGuard, RecomputedLayersLeaveThemOutToo) {
  const auto flow = flow_of({constant, coupling, constant});
  const auto x = torch::randn({5, features}, torch::kFloat64);
  const auto by_parameters = [&] {
    Tensor loss;
    {
      const ConstantLogDetGuard guard;
      loss = flow->log_prob(x).sum();
    }
    return torch::autograd::grad({loss}, flow->parameters());
  };
  const auto want = by_parameters();
  for (const auto memory : {Memory::checkpoint, Memory::constant}) {
    flow->set_memory(memory);
    const auto got = by_parameters();
    for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-10, 1e-10));
  }
}

TEST(Recipes, EbflowIsMatricesWithBendsBetween) {
  const auto flow = build_flow(recipe("ebflow", {.features = 3, .layers = 3}));
  EXPECT_EQ(flow->spec()["layers"].size(), 5u);
  EXPECT_EQ(flow->parameters().size(), 6u);
  EXPECT_THROW(recipe("ebflow", {.features = 3, .width = 8}), SpecError);
  EXPECT_THROW(recipe("ebflow", {.features = 3, .context = 2}), SpecError);
}

TEST(Energy, TheNormaliserOnlyLooksAtAFlowInTraining) {
  const auto flow = build_flow(
      {{"layers", {{{"type", "actnorm"}, {"features", 2}}}}, {"base", {{"type", "normal"}, {"features", 2}}}});
  flow->train();
  Energy(flow).log_normaliser();
  EXPECT_TRUE(flow->is_training());
  for (const auto& buffer : flow->named_buffers()) EXPECT_EQ(buffer.value().sum().item<double>(), 0) << buffer.key();
}

}  // namespace
}  // namespace diffeo::testing
