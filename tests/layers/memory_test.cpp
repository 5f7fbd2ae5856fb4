// What a Sequential keeps for the backward pass changes its memory, never its gradients.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/gradient_place.h"
#include "diffeo/layers/base/peak_memory.h"
#include "diffeo/layers/base/random.h"
#include "diffeo/layers/sequential/sequential.h"
#include "properties/cases.h"

namespace diffeo::testing {
namespace {

/// What one step makes: the outputs, the gradients by x, by the context and by each parameter, and the buffers.
struct Outcome {
  std::vector<Tensor> tensors;
  std::vector<std::string> names;

  void add(const std::string& name, const Tensor& tensor) {
    names.push_back(name);
    tensors.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
  }
};

Outcome step(const LayerPtr& layer, const Tensor& points, const Tensor& given_context) {
  torch::manual_seed(5);
  Outcome outcome;
  const auto x = points.detach().clone().requires_grad_();
  const auto context = given_context.defined() ? given_context.detach().clone().requires_grad_() : Tensor();
  const auto [y, log_det] = layer->forward(x, context);
  const auto weights = torch::arange(1, y.size(-1) + 1, y.options());
  const auto loss = (y.sin() * weights).sum() + log_det.square().sum() + log_det.sum();
  std::vector<Tensor> inputs{x};
  if (context.defined()) inputs.push_back(context);
  for (const auto& parameter : layer->parameters()) inputs.push_back(parameter);
  const auto grads = torch::autograd::grad({loss}, inputs, {}, {}, false, true);
  outcome.add("value", y);
  outcome.add("log_det", log_det);
  for (size_t i = 0; i < grads.size(); ++i)
    outcome.add(i == 0                        ? "by x"
                : i == 1 && context.defined() ? "by context"
                                              : "by " + layer->named_parameters()[i - 1 - context.defined()].key(),
                grads[i]);
  for (const auto& buffer : layer->named_buffers()) outcome.add(buffer.key(), buffer.value());
  return outcome;
}

/// `bound` is relative to the largest value of a tensor; 0 asks for the same bits.
void expect_same(const Outcome& got, const Outcome& want, double bound) {
  ASSERT_EQ(got.tensors.size(), want.tensors.size());
  for (size_t i = 0; i < want.tensors.size(); ++i) {
    const auto &a = got.tensors[i], &b = want.tensors[i];
    ASSERT_EQ(a.defined(), b.defined()) << want.names[i];
    if (!b.defined() || a.equal(b)) continue;
    ASSERT_EQ(a.sizes(), b.sizes()) << want.names[i];
    // Terms of a context's gradient, one for each place that reads it, are summed in another order.
    const double rounding = want.names[i] == "by context" ? (b.scalar_type() == torch::kFloat64 ? 1e-14 : 1e-5) : 0;
    const double error = ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
    EXPECT_LE(error, std::max(bound, rounding)) << want.names[i];
  }
}

double bound_of(torch::Dtype dtype) { return dtype == torch::kFloat64 ? 1e-10 : 2e-3; }

std::shared_ptr<Sequential> stacked(const std::vector<LayerPtr>& layers) {
  const auto sequence = std::make_shared<Sequential>(layers);
  sequence->to(layers[0]->tensor_options().device(), c10::typeMetaToScalarType(layers[0]->tensor_options().dtype()));
  return sequence;
}

/// Steps in all modes, from the same state.
void expect_same_in_all_modes(const std::shared_ptr<Sequential>& layers, const Tensor& x, const Tensor& context) {
  const auto start = clone(*layers);
  const auto in_mode = [&](Memory memory) {
    copy_state(*start, *layers);
    layers->set_memory(memory);
    return step(layers, x, context);
  };
  const auto want = in_mode(Memory::normal);
  {
    SCOPED_TRACE("checkpoint");
    expect_same(in_mode(Memory::checkpoint), want, 0);
  }
  SCOPED_TRACE("constant");
  expect_same(in_mode(Memory::constant), want, bound_of(x.scalar_type()));
}

Tensor context_for(const Layer& layer, int64_t rows, const torch::TensorOptions& options) {
  return layer.context_size() > 0 ? torch::randn({rows, layer.context_size()}, options) : Tensor();
}

class MemoryOfLayers : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryOfLayers, GradientsAreTheSame) {
  const auto options = torch::TensorOptions(GetParam().dtype).device(GetParam().device);
  std::vector<LayerPtr> layers{build(GetParam())};
  const auto space = layers[0]->domain();
  if (space.same_as(layers[0]->codomain())) {
    for (int i = 0; i < 2; ++i) {
      layers.push_back(clone(*layers[0]));
      torch::NoGradGuard no_grad;
      for (auto& parameter : layers.back()->parameters()) parameter.add_(torch::randn_like(parameter), 0.1);
    }
  } else {  // there and back again
    const auto back = build_layer({{"type", "inverse"}, {"layer", GetParam().spec}});
    back->to(GetParam().device, GetParam().dtype);
    layers.push_back(back);
  }
  const auto sequence = stacked(layers);
  const auto x = points_in(space, {12}, options);
  const auto context = context_for(*sequence, 12, options);
  for (const bool training : {false, true}) {
    SCOPED_TRACE(training ? "training" : "evaluation");
    sequence->train(training);
    expect_same_in_all_modes(sequence, x, context);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, MemoryOfLayers, ::testing::ValuesIn(every_case()),
                         [](const auto& info) { return info.param.name; });

Json coupling(const Json& options = Json::object()) {
  Json spec = {{"type", "coupling"}, {"features", 3}, {"net", {{"width", 8}}}};
  spec.update(options);
  return spec;
}

std::shared_ptr<Sequential> built(const std::vector<Json>& specs, torch::Dtype dtype = torch::kFloat64) {
  torch::manual_seed(2);
  auto layers = std::make_shared<Sequential>(Sequential::Options{specs});
  layers->to(dtype);
  torch::NoGradGuard no_grad;
  for (auto& parameter : layers->parameters()) parameter.add_(torch::randn_like(parameter), 0.2);
  return layers;
}

TEST(Memory, RecipesHaveTheSameLikelihoodAndGradients) {
  for (const std::string name : {"nsf", "maf", "realnvp", "glow", "iaf"})
    for (const int64_t context : {0, 2})
      for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
        SCOPED_TRACE(c10::str(name, ", context ", context, ", ", dtype));
        torch::manual_seed(3);
        const auto flow = build_flow(recipe(name, {.features = 4, .context = context, .layers = 6, .width = 16}));
        flow->to(dtype);
        {
          torch::NoGradGuard no_grad;
          for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
        }
        const auto layers = std::dynamic_pointer_cast<Sequential>(flow->layers());
        const auto x = torch::randn({40, 4}, dtype);
        expect_same_in_all_modes(layers, x, context_for(*layers, 40, dtype));
        flow->set_memory(Memory::checkpoint);
        EXPECT_EQ(flow->memory(), Memory::checkpoint);
        const auto c = context_for(*layers, 40, dtype);
        const auto got = flow->log_prob(x, c);
        EXPECT_TRUE(got.requires_grad());
        flow->set_memory(Memory::normal);
        EXPECT_TRUE(got.equal(flow->log_prob(x, c)));
      }
}

TEST(Memory, StatefulLayersChangeOnceAndDropoutDropsTheSame) {
  const Json net = {{"type", "residual"}, {"width", 8}, {"dropout", 0.3}, {"batch_norm", true}};
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const auto layers = built({{{"type", "actnorm"}, {"features", 3}},
                               coupling({{"net", net}}),
                               {{"type", "batch_norm"}, {"features", 3}},
                               coupling(),
                               coupling({{"flip", true}, {"net", {{"width", 8}, {"dropout", 0.2}}}})},
                              dtype);
    layers->train();
    torch::manual_seed(4);
    expect_same_in_all_modes(layers, 3 + 2 * torch::randn({30, 3}, dtype), {});
    torch::manual_seed(6);
    layers->set_memory(Memory::normal);
    layers->forward(torch::randn({30, 3}, dtype));
    const auto after = random_state(torch::kCPU);
    torch::manual_seed(6);
    layers->set_memory(Memory::constant);
    auto [y, log_det] = layers->forward(torch::randn({30, 3}, dtype));
    (y.sum() + log_det.sum()).backward();
    EXPECT_TRUE(random_state(torch::kCPU).equal(after)) << "the backward pass took random numbers";
  }
}

/// y = 2 x, with an inverse that is off.
class Worn : public Layer {
 public:
  explicit Worn(double error) : Layer(Space::reals(3)), error_(error) {
    scale_ = register_parameter("scale", torch::full({3}, 2.0));
    to(torch::kFloat64);
  }
  Json spec() const override { return {{"type", "worn"}}; }
  int inverses = 0;

 private:
  Mapped map(const Tensor& x, const Tensor&) override {
    return {x * scale_, scale_.log().sum().expand(x.sizes().slice(0, x.dim() - 1))};
  }
  Mapped unmap(const Tensor& y, const Tensor&) override {
    ++inverses;
    return {y / scale_ * (1 + error_), -scale_.log().sum().expand(y.sizes().slice(0, y.dim() - 1))};
  }
  double error_;
  Tensor scale_;
};

TEST(Memory, AnInexactInverseIsFoundOutAndItsInputKept) {
  auto layers = built({coupling(), coupling({{"flip", true}}), coupling(), coupling({{"flip", true}})})->layers();
  const auto worn = std::make_shared<Worn>(1e-4);
  layers.insert(layers.begin() + 2, worn);
  const auto sequence = stacked(layers);
  const auto x = torch::randn({20, 3}, torch::kFloat64);
  const auto want = step(sequence, x, {});
  sequence->set_memory(Memory::constant);
  expect_same(step(sequence, x, {}), want, 0);  // computed from the kept input of the first layer
  EXPECT_EQ(sequence->inexact(), std::vector<size_t>{2});
  EXPECT_EQ(worn->inverses, 1);
  expect_same(step(sequence, x, {}), want, 1e-10);
  EXPECT_EQ(worn->inverses, 1) << "it was trusted again";
  EXPECT_EQ(sequence->inexact().size(), 1);
}

TEST(Memory, ErrorsThatPileUpAreFoundOut) {
  // Each within the bound, all together beyond it: the sequence is halved until they are not.
  const double each = 0.6 * inverse_error_bound(torch::kFloat64);
  std::vector<LayerPtr> layers;
  for (int i = 0; i < 8; ++i) layers.push_back(std::make_shared<Worn>(each));
  const auto sequence = stacked(layers);
  const auto x = torch::randn({20, 3}, torch::kFloat64);
  const auto want = step(sequence, x, {});
  sequence->set_memory(Memory::constant);
  expect_same(step(sequence, x, {}), want, 0);
  EXPECT_EQ(sequence->inexact(), std::vector<size_t>{4});
  for (int i = 0; i < 12; ++i) expect_same(step(sequence, x, {}), want, 1e-6);
  const auto found = sequence->inexact().size();
  EXPECT_GE(found, 3);
  EXPECT_LE(found, 7);
}

TEST(Memory, ValuesThatAreNoNumbersCastNoDoubt) {
  const auto sequence = built({coupling(), coupling({{"flip", true}}), coupling()});
  sequence->set_memory(Memory::constant);
  auto x = torch::randn({20, 3}, torch::kFloat64);
  x[3][1] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(step(sequence, x, {}).tensors[2].isnan().any().item<bool>());
  EXPECT_TRUE(sequence->inexact().empty());
}

TEST(Memory, SecondDerivativesAreThoseOfTheNormalMode) {
  const auto layers =
      built({coupling({{"context", 2}, {"net", {{"width", 8}, {"activation", "tanh"}}}}),
             {{"type", "lu_linear"}, {"features", 3}},
             coupling({{"context", 2}, {"flip", true}, {"net", {{"width", 8}, {"activation", "tanh"}}}})});
  torch::manual_seed(8);
  const auto points = torch::randn({10, 3}, torch::kFloat64), given = torch::randn({10, 2}, torch::kFloat64);
  const auto curvature = [&](Memory memory) {
    layers->set_memory(memory);
    const auto x = points.clone().requires_grad_(), c = given.clone().requires_grad_();
    const auto [y, log_det] = layers->forward(x, c);
    const auto slopes = torch::autograd::grad({y.sin().sum() + log_det.square().sum()}, {x, c}, {}, true, true);
    auto inputs = layers->parameters();
    inputs.insert(inputs.end(), {x, c});
    return torch::autograd::grad({slopes[0].square().sum() + slopes[1].square().sum()}, inputs, {}, {}, false, true);
  };
  const auto want = curvature(Memory::normal);
  for (const auto memory : {Memory::checkpoint, Memory::constant}) {
    const auto got = curvature(memory);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(got[i].defined(), want[i].defined());
      if (want[i].defined()) {
        EXPECT_TRUE(torch::allclose(got[i], want[i], 1e-12, 1e-12));
      }
    }
  }
}

TEST(Memory, SecondDerivativesOfAChangingLayerAreRefused) {
  const auto layers = built({coupling(), {{"type", "batch_norm"}, {"features", 3}}});
  layers->train();
  layers->set_memory(Memory::checkpoint);
  const auto x = torch::randn({10, 3}, torch::kFloat64).requires_grad_();
  const auto y = layers->forward(x).value;
  try {
    torch::autograd::grad({y.sin().sum()}, {x}, {}, true, true);
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("layers/1 changes in training"), std::string::npos) << error.what();
  }
}

TEST(Memory, OnlyWhatIsAskedFor) {
  // The gradient by one input does not need, and does not make, those by the others.
  const auto layers = built({{{"type", "actnorm"}, {"features", 3}}, coupling({{"context", 2}}), coupling()});
  torch::manual_seed(9);
  const auto points = torch::randn({10, 3}, torch::kFloat64), given = torch::randn({10, 2}, torch::kFloat64);
  const auto one = [&](Memory memory, int which) {
    layers->set_memory(memory);
    const auto x = points.clone().requires_grad_(which == 0), c = given.clone().requires_grad_(which == 1);
    const auto [y, log_det] = layers->forward(x, c);
    const auto input = which == 0 ? x : which == 1 ? c : layers->parameters().back();
    return torch::autograd::grad({y.sin().sum() + log_det.sum()}, {input})[0];
  };
  for (const auto memory : {Memory::checkpoint, Memory::constant})
    for (const int which : {0, 1, 2})
      EXPECT_TRUE(torch::allclose(one(memory, which), one(Memory::normal, which), 1e-10, 1e-10)) << which;
  for (auto& parameter : layers->parameters()) parameter.requires_grad_(false);
  for (const auto memory : {Memory::checkpoint, Memory::constant})
    EXPECT_TRUE(torch::allclose(one(memory, 0), one(Memory::normal, 0), 1e-10, 1e-10)) << "parameters are frozen";
  layers->set_memory(Memory::constant);
  EXPECT_FALSE(layers->forward(points, given).value.requires_grad());
}

TEST(Memory, TheModeOfTheForwardPassCounts) {
  const auto layers = built({coupling(), {{"type", "batch_norm"}, {"features", 3}}, coupling()});
  const auto x = torch::randn({10, 3}, torch::kFloat64);
  const auto by_x = [&](Memory memory) {
    layers->set_memory(memory);
    layers->train();
    const auto leaf = x.clone().requires_grad_();
    const auto y = layers->forward(leaf).value;
    layers->eval();
    const auto grad = torch::autograd::grad({y.sin().sum()}, {leaf})[0];
    EXPECT_FALSE(layers->layers()[1]->is_training());
    return grad;
  };
  const auto want = by_x(Memory::normal);
  EXPECT_TRUE(by_x(Memory::checkpoint).equal(want));
  EXPECT_TRUE(torch::allclose(by_x(Memory::constant), want, 1e-10, 1e-10));
}

TEST(Memory, ALayerMayStandInASequenceTwice) {
  const auto once = built({coupling(), coupling({{"flip", true}})})->layers();
  const auto twice = stacked({once[0], once[1], once[0], once[1]});
  const auto x = torch::randn({10, 3}, torch::kFloat64);
  const auto grads = [&](Memory memory) {
    twice->set_memory(memory);
    for (auto& parameter : once[0]->parameters()) parameter.mutable_grad().reset();
    const auto [y, log_det] = twice->forward(x);
    (y.sin().sum() + log_det.sum()).backward();
    return once[0]->parameters()[0].grad().clone();
  };
  const auto want = grads(Memory::normal);
  EXPECT_TRUE(torch::allclose(grads(Memory::checkpoint), want, 1e-12, 1e-12));
  EXPECT_TRUE(torch::allclose(grads(Memory::constant), want, 1e-10, 1e-10));
}

TEST(Memory, GradientsGoToTheirPlaces) {
  const auto layers = built({coupling(), coupling({{"flip", true}})});
  const auto parameter = layers->parameters()[0];
  const auto place = torch::zeros_like(parameter);
  GradientPlaces places;
  places.add(parameter, place);
  for (const auto memory : {Memory::normal, Memory::checkpoint, Memory::constant}) {
    layers->set_memory(memory);
    auto held = parameter;
    held.mutable_grad().reset();
    places.offer();
    const auto [y, log_det] = layers->forward(torch::randn({10, 3}, torch::kFloat64));
    (y.sin().sum() + log_det.sum()).backward();
    EXPECT_EQ(parameter.grad().data_ptr(), place.data_ptr()) << static_cast<int>(memory);
    places.withdraw();
  }
}

TEST(Memory, OfAStepDoesNotGrowWithTheDepth) {
  const auto peak = [](Memory memory, int64_t depth) {
    std::vector<Json> specs;
    for (int64_t i = 0; i < depth; ++i)
      specs.push_back(coupling({{"flip", i % 2 == 1}, {"map", {{"type", "rq_spline"}, {"bins", 4}}}}));
    const auto layers = built(specs);
    layers->set_memory(memory);
    const auto x = torch::randn({2048, 3}, torch::kFloat64);
    const PeakMemory watch;
    const auto [y, log_det] = layers->forward(x);
    (y.square().sum() - log_det.sum()).backward();
    return static_cast<double>(watch.peak());
  };
  EXPECT_GT(peak(Memory::normal, 24), 5 * peak(Memory::normal, 4));
  EXPECT_LT(peak(Memory::constant, 24), 1.3 * peak(Memory::constant, 4));
  EXPECT_LT(peak(Memory::checkpoint, 24), 2.5 * peak(Memory::checkpoint, 4));
}

TEST(Memory, UnknownNamesAreRefused) {
  EXPECT_EQ(memory_named("constant"), Memory::constant);
  EXPECT_EQ(memory_named("checkpoint"), Memory::checkpoint);
  EXPECT_EQ(memory_named("normal"), Memory::normal);
  EXPECT_THROW(memory_named("none"), SpecError);
}

}  // namespace
}  // namespace diffeo::testing
