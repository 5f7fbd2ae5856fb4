// Targets from shared libraries: the example that the guide shows, and a library that makes every mistake.
#include "diffeo/samplers/targets/plugin.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>

#include "diffeo/flows/model.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/samplers/annealed.h"
#include "diffeo/samplers/importance.h"

namespace diffeo::testing {
namespace {

TargetPtr ring(const std::string& options = "2 0.5") {
  return build_target({{"type", "plugin"}, {"library", DIFFEO_RING}, {"options", options}});
}

/// The same density in tensors.
Tensor ring_density(const Tensor& x) { return -0.5 * ((x.square().sum(-1).sqrt() - 2) / 0.5).square(); }

std::string message(const Json& spec, const Tensor& x = {}) {
  try {
    const auto target = build_target(spec);
    if (x.defined()) target->log_prob_and_gradient(x);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Plugin, ValuesAndDerivativesAreThoseOfTheDensity) {
  const auto target = ring();
  EXPECT_EQ(target->name(), "ring");
  EXPECT_EQ(target->space().size(), 2);
  torch::manual_seed(1);
  const auto x = torch::randn({4, 5, 2}, torch::kFloat64).requires_grad_();
  const auto want = ring_density(x);
  EXPECT_TRUE(torch::allclose(target->log_prob(x), want, 1e-12, 1e-12));
  const auto gradient = torch::autograd::grad({want.sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(torch::allclose(target->log_prob_and_gradient(x).gradient, gradient, 1e-11, 1e-11));
  const auto automatic = torch::autograd::grad({target->log_prob(x).sum()}, {x}, {}, true, true)[0];
  EXPECT_TRUE(torch::allclose(automatic, gradient, 1e-11, 1e-11));
  // Second derivatives, which training through Langevin steps needs.
  const auto v = torch::randn_like(x);
  const auto second = torch::autograd::grad({(automatic * v).sum()}, {x})[0],
             exact = torch::autograd::grad({(gradient * v).sum()}, {x})[0];
  EXPECT_TRUE(torch::allclose(second, exact, 1e-4, 1e-4)) << (second - exact).abs().max();
  const auto single = target->log_prob(x.detach().to(torch::kFloat32));
  EXPECT_EQ(single.scalar_type(), torch::kFloat32);
  EXPECT_EQ(target->log_prob(torch::zeros({0, 2}, torch::kFloat64)).size(0), 0);
}

TEST(Plugin, CanBeSampled) {
  torch::manual_seed(2);
  const auto target = ring();
  const auto samples = annealed_importance_sampling(target, build_distribution({{"type", "normal"}, {"features", 2}}),
                                                    4000, {.blocks = 5});
  const auto z = log_mean_weight(samples.log_weight);
  // The integral of exp(-(r - 2)^2 / (2 0.25)) over the plane, 2 pi 2 sqrt(2 pi) 0.5 but for 1e-5.
  EXPECT_NEAR(z.value, std::log(2 * M_PI * 2 * std::sqrt(2 * M_PI) * 0.5), 4 * z.error + 1e-4) << "seed 2";
}

TEST(Plugin, LearnsThroughLangevinSteps) {
  const auto kernel = build_kernel({{"type", "langevin"}, {"steps", 2}, {"step_size", 0.02}}, ring());
  kernel->to(torch::kFloat64);
  const auto x = torch::ones({3, 2}, torch::kFloat64).requires_grad_();
  const auto loss = [&](const Tensor& at) {
    torch::manual_seed(3);
    const auto [y, log_det] = kernel->forward(at);
    return y.sum() + log_det.sum();
  };
  const auto slope = torch::autograd::grad({loss(x)}, {x})[0].sum().item<double>();
  torch::NoGradGuard no_grad;
  const double step = 1e-5;
  EXPECT_NEAR((loss(x + step) - loss(x - step)).item<double>() / (2 * step), slope, 1e-4 * (1 + std::abs(slope)));
}

TEST(Plugin, MistakesNameTheLibrary) {
  const std::string bad = DIFFEO_BAD_PLUGIN;
  const auto x = torch::ones({2, 3}, torch::kFloat64);
  const auto expect = [&](const std::string& got, const std::string& library, const std::string& words) {
    EXPECT_EQ(got.find(library), 0u) << got;
    EXPECT_NE(got.find(words), std::string::npos) << "'" << words << "' is not in: " << got;
  };
  const auto with = [&](const char* option) { return Json{{"type", "plugin"}, {"library", bad}, {"options", option}}; };
  expect(message({{"type", "plugin"}, {"library", "./nothing.so"}}), "./nothing.so", "there is no such file");
  const std::string text = ::testing::TempDir() + "no_library.so";
  std::ofstream(text) << "only text";
  expect(message({{"type", "plugin"}, {"library", text}}), text, "is no shared library");
  expect(message({{"type", "plugin"}, {"library", DIFFEO_LIBRARY}}), DIFFEO_LIBRARY, "no function diffeo_target_open");
  expect(message(with("version")), bad, "compiled against version 2");
  expect(message(with("features")), bad, "have 0 features");
  expect(message(with("function")), bad, "gives no function log_density");
  expect(message(with("refuse")), bad, "it does not feel like it");
  expect(message(with("nan"), x), bad, "its log density is not a number at");
  expect(message(with("gradient"), x), bad, "its gradient is not a number at");
  expect(message(with("fails"), x), bad, "failed with code 42");
  EXPECT_EQ(message(with("outside"), -x), "");
  auto other = with("");
  other["features"] = 5;
  expect(message(other), bad, "3 features, but 5 are asked for");
  expect(message({{"type", "plugin"}, {"library", DIFFEO_RING}, {"options", "one"}}), DIFFEO_RING,
         "two numbers above 0");
  EXPECT_NE(message({{"type", "plugin"}}).find("'library' is missing"), std::string::npos);
  EXPECT_NE(message({{"type", "plugin"}, {"library", ""}}).find("'library' is empty"), std::string::npos);
}

// Loading a model runs no code that its file names.
TEST(Plugin, ModelsThatNameALibraryAreNotBuiltUnasked) {
  const auto flow = annealing_flow(ring(), build_distribution({{"type", "normal"}, {"features", 2}}), {.blocks = 2});
  ModelFile model;
  model.spec = flow->spec();
  model.state = named_state(*flow);
  EXPECT_EQ(libraries_in(model.spec), std::vector<std::string>(2, DIFFEO_RING));
  EXPECT_NO_THROW(flow_from(model, "ring.h5", Libraries::allowed));
  try {
    flow_from(model, "ring.h5");
    FAIL() << "a library was loaded";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find("ring.h5: this model moves at a density from the shared library"), 0u);
  }
}

}  // namespace
}  // namespace diffeo::testing
