// The three orders of the channels on real images, at equal budget and parameters, over three seeds: a table of test
// bits per dimension. Learned orders must cost nothing worth the name; what they gain is printed as it is. A seed gives
// the flows of all orders the same first weights, batches and noise: chance differs less between orders than between
// seeds.
//
//   accept_eiw_orders [DATA SET (fashion_mnist, cifar10_sample; default: both)] [STEPS]
#include <torch/types.h>

#include <cmath>
#include <cstdlib>
#include <map>

#include "accept.h"
#include "diffeo/data/dequantize.h"
#include "diffeo/data/image_rows.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/preprocess.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/noisy_data.h"

namespace {

using namespace diffeo;

const std::vector<std::string> orders{"static", "eiw", "negentropy"};
constexpr int seeds = 3;

struct Measured {
  double bits = 0, seconds = 0;
};

/// The flow of a spec. Weights that it shares with the plain split are those which the plain split has by this seed:
/// the solver and the guider draw numbers of their own, after which nothing else would start alike.
FlowPtr started(const Json& spec, const Json& plain, int seed) {
  torch::manual_seed(seed);
  const auto flow = build_flow(spec);
  torch::manual_seed(seed);
  const auto from = build_flow(plain)->named_parameters();
  torch::NoGradGuard no_grad;
  for (auto& named : flow->named_parameters())
    if (const auto* shared = from.find(named.key())) named.value().copy_(*shared);
  return flow;
}

Measured run(const std::string& file, const Splits& splits, const std::string& order, int seed, int64_t steps) {
  const auto columns = static_cast<int64_t>(splits.columns.size());
  const auto images = image_rows(file, splits.image_shape).value();
  const PreprocessOptions how{.preprocess = "shared", .transform = {}, .dequantize = {"all"}};
  const auto front = preprocessing(how, splits.columns, *splits.train);
  const auto spec_of = [&](const std::string& with_order) {
    auto spec = recipe("eiw", {.features = columns,
                               .layers = 4,
                               .width = 32,
                               .image = images.shape,
                               .layout = images.layout,
                               .order = with_order,
                               .seed = seed});
    auto layers = Json(front);
    for (const auto& layer : spec["layers"]) layers.push_back(layer);
    spec["layers"] = layers;
    return spec;
  };
  const auto flow = started(spec_of(order), spec_of("static"), seed);
  int64_t parameters = 0;
  for (const auto& named : flow->named_parameters())
    if (named.key().find("solver") == std::string::npos && named.key().find("guider") == std::string::npos)
      parameters += named.value().numel();
  const auto noisy = dequantized_columns(how, splits.columns);
  NoisyData objective(std::make_shared<MaximumLikelihood>(flow), *flow, {.dequantize = noisy});
  const auto report = fit(objective, *splits.train, nullptr,
                          {.batch_size = 64,
                           .steps = steps,
                           .learning_rate = 2e-3,
                           .warmup_steps = 50,
                           .checkpoint_seconds = 0,
                           .seed = static_cast<uint64_t>(seed)});
  const auto rows = dequantized(splits.test->in_order(250), noisy, 0);
  LogLikelihoods all;
  each_log_prob(*flow, *rows, [&](const Tensor& log_prob, const Batch&) { all.add(log_prob); });
  const Measured measured{all.bits_per_dimension(columns), report.seconds};
  std::printf("run %s %s seed %d: %.4f bits per dimension (%.0f s, %ld parameters of the flow)\n", file.c_str(),
              order.c_str(), seed, measured.bits, measured.seconds, static_cast<long>(parameters));
  std::fflush(stdout);
  return measured;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double spread(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += (value - mean(values)) * (value - mean(values));
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

}  // namespace

int main(int argc, char** argv) {
  diffeo::testing::Acceptance accept;
  std::vector<std::string> sets{"fashion_mnist", "cifar10_sample"};
  if (argc > 1) sets = {argv[1]};
  std::map<std::string, std::map<std::string, std::vector<double>>> bits;
  for (const auto& set : sets) {
    const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 1500;
    const auto file = diffeo::testing::data_file(set);
    const auto splits = load_splits({.file = file}, torch::kFloat32);
    // Seed by seed with the orders in turn, so that a slow hour of the machine slows all of them.
    for (int seed = 1; seed <= seeds; ++seed)
      for (const auto& order : orders) bits[set][order].push_back(run(file, splits, order, seed, steps).bits);
  }
  std::printf("| data | order | bits per dimension | seed by seed |\n| --- | --- | --- | --- |\n");
  for (const auto& set : sets)
    for (const auto& order : orders) {
      const auto& values = bits[set][order];
      std::printf("| %s | %s | %.4f +- %.4f | %.4f %.4f %.4f |\n", set.c_str(), order.c_str(), mean(values),
                  spread(values), values[0], values[1], values[2]);
    }
  for (const auto& set : sets)
    for (const std::string order : {"eiw", "negentropy"})
      accept.at_most("eiw_orders_" + set + "_" + order + "_minus_static",
                     mean(bits[set][order]) - mean(bits[set]["static"]), 0.02);
  return accept.exit_code();
}
