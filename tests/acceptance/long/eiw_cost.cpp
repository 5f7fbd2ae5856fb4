// What the order of the channels costs: processor time of a training step against the plain split's, the two taken in
// turn in one run.
#include <torch/types.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "accept.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/objective.h"

namespace {

using namespace diffeo;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Step {
  explicit Step(const std::string& order, const std::vector<int64_t>& image) {
    torch::manual_seed(1);
    const auto features = image[0] * image[1] * image[2];
    objective = std::make_shared<MaximumLikelihood>(build_flow(recipe(
        "eiw", {.features = features, .layers = 4, .width = 32, .image = image, .layout = "nhwc", .order = order})));
    x = torch::randn({64, features});
  }
  double seconds() {
    const double start = processor_seconds();
    objective->loss({.x = x}).backward();
    const double taken = processor_seconds() - start;
    for (auto& parameter : objective->parameters()) parameter.mutable_grad().reset();
    // What an update does to the order: it has to be made anew.
    torch::NoGradGuard no_grad;
    for (auto& parameter : objective->parameters()) parameter.mul_(1);
    return taken;
  }
  std::shared_ptr<MaximumLikelihood> objective;
  Tensor x;
};

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  for (const auto& [name, image] : {std::pair<std::string, std::vector<int64_t>>{"28x28x1", {1, 28, 28}},
                                    std::pair<std::string, std::vector<int64_t>>{"32x32x3", {3, 32, 32}}}) {
    Step plain("static", image);
    for (const std::string order : {"eiw", "negentropy"}) {
      Step ordered(order, image);
      std::vector<double> ratios;
      for (int i = 0; i < 41; ++i) {
        // First one, then the other: whatever else the machine does falls on both.
        const double first = i % 2 == 0 ? plain.seconds() : 0, with = ordered.seconds();
        const double without = i % 2 == 0 ? first : plain.seconds();
        if (i > 0) ratios.push_back(with / without);
      }
      std::nth_element(ratios.begin(), ratios.begin() + ratios.size() / 2, ratios.end());
      accept.at_most("eiw_cost_" + order + "_" + name, ratios[ratios.size() / 2] - 1, 0.10);
    }
  }
  return accept.exit_code();
}
