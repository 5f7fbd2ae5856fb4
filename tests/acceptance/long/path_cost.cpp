// A step of training, loss and gradient, by each estimator: medians of CPU time, one thread, the estimators taking
// turns.

#include <ATen/Parallel.h>

#include <algorithm>

#include "accept.h"
#include "path.h"

namespace {

using namespace diffeo;
using namespace diffeo::testing;

/// Median seconds of a step of each objective.
std::vector<double> seconds(const std::vector<ObjectivePtr>& objectives, const Batch& batch, int rounds) {
  std::vector<std::vector<double>> all(objectives.size());
  for (int round = -2; round < rounds; ++round)
    for (size_t i = 0; i < objectives.size(); ++i) {
      const double start = cpu_seconds();
      for (auto& parameter : objectives[i]->parameters()) parameter.mutable_grad() = Tensor();
      objectives[i]->loss(batch).backward();
      if (round >= 0) all[i].push_back(cpu_seconds() - start);
    }
  std::vector<double> medians;
  for (auto& times : all) {
    std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
    medians.push_back(times[rounds / 2]);
  }
  return medians;
}

/// Reverse and forward, for a map; `least` is what one pass has to gain over two, where inverses are iterations.
void compare(Acceptance& accept, const std::string& name, Couplings shape, int64_t rows, int rounds, double least) {
  shape.features = 64;
  shape.width = 128;
  shape.depth = 2;
  shape.activation = "relu";
  shape.mask = "half";
  torch::manual_seed(3);
  // Any target of the right size, as cheap as can be: it costs all estimators the same.
  class Round : public LogDensity {
   public:
    Round() : LogDensity(Space::reals(64)) {}

   private:
    Tensor evaluate(const Tensor& x) override { return -0.5 * x.square().sum(-1); }
    Sloped evaluate_with_gradient(const Tensor& x) override { return {evaluate(x), -x}; }
  };
  const auto round = std::make_shared<Round>();
  const Batch batch{.x = torch::randn({rows, 64})};
  const auto say = [&](const std::string& what, const std::vector<double>& t) {
    std::printf("%s: standard %.1f ms, path %.1f ms, path in two passes %.1f ms\n", what.c_str(), 1e3 * t[0],
                1e3 * t[1], 1e3 * t[2]);
    accept.at_most(what + "_path_over_standard", t[1] / t[0], 2.3);
    accept.at_most(what + "_path_over_two_passes", t[1] / t[2], 1);
    if (least > 0) accept.at_least(what + "_two_passes_over_path", t[2] / t[1], least);
  };
  // Drawing goes by the direction that has a formula.
  shape.inverted = least > 0;
  const auto drawing = couplings(shape, torch::kFloat32);
  const auto reverse = [&](const char* estimator) -> ObjectivePtr {
    return std::make_shared<ReverseKl>(drawing, round, ReverseKl::Options{.estimator = estimator});
  };
  say(name + "_reverse",
      seconds({reverse("reparametrised"), reverse("path"), reverse("path_two_pass")}, batch, rounds));
  shape.inverted = false;
  const auto reading = couplings(shape, torch::kFloat32);
  const auto forward = [&](const char* estimator) -> ObjectivePtr {
    return std::make_shared<ForwardKl>(reading, round, ForwardKl::Options{.estimator = estimator});
  };
  say(name + "_forward",
      seconds({forward("maximum_likelihood"), forward("path"), forward("path_two_pass")}, batch, rounds));
}

}  // namespace

int main() {
  at::set_num_threads(1);
  Acceptance accept;
  compare(accept, "affine", {.count = 8}, 1024, 31, 0);
  compare(accept, "spline", {.count = 8, .map = {{"type", "rq_spline"}, {"bins", 8}}}, 1024, 31, 0);
  compare(accept, "bisected", {.count = 8, .map = {{"type", "sigmoid_mixture"}}}, 256, 5, 3);
  return accept.exit_code();
}
