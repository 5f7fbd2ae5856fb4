// A flow of two matrices on MNIST, D = 784, trained four ways on one thread: by maximum likelihood with
// log-determinants and by three kinds of score matching without, all from the same weights: the last matrix makes the
// latent training rows white. Learning rates and sigma were chosen on the validation rows. The likelihood of the test
// rows against the CPU time of the training steps goes to a table, for gnuplot, in the file named by the argument
// (ebflow_mnist.dat unless given).
//
//   accept_ebflow_mnist [FILE [SECONDS FOR EACH METHOD]]
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "accept.h"
#include "diffeo/data/dequantize.h"
#include "diffeo/data/splits.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/preprocess.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/flows/whitened_latent.h"
#include "diffeo/trainers/noisy_data.h"
#include "diffeo/trainers/optimizer.h"

namespace {

using namespace diffeo;

struct Method {
  const char* name;
  std::vector<Json> stages;  ///< objectives, each for an equal part of the time
  double learning_rate;
};

struct Point {
  double seconds, nats;
  int64_t steps;
};

/// The data, and the layers that stand in front of every flow.
class Task {
 public:
  explicit Task(const std::string& file) {
    DataOptions options;
    options.file = file;
    splits_ = load_splits(options, torch::kFloat32);
    // Logits at their own scale: dark and bright pixels lie units apart and are a unit wide. Brought to unit deviation,
    // pixels that are both dark and bright would be a few tenths wide, narrower than the noise of the matching.
    const PreprocessOptions how{
        .preprocess = "none", .transform = {"all=logit:0:256"}, .dequantize = {"all"}, .noise = 0};
    noisy_ = dequantized_columns(how, splits_.columns);
    front_ = preprocessing(how, splits_.columns, *splits_.train);
    // The curves take a part of the rows.
    Batch rows;
    splits_.test->in_order(2000)->next(rows);
    some_ = in_memory(rows);
  }

  FlowPtr flow() const {
    auto spec = recipe("ebflow", {.features = features()});
    auto layers = front_;
    for (const auto& layer : spec["layers"]) layers.push_back(layer);
    spec["layers"] = layers;
    const auto flow = build_flow(spec);
    whiten_latent(*flow, *dequantized(splits_.train->in_order(1000), noisy_, 5));
    return flow;
  }
  int64_t features() const { return static_cast<int64_t>(splits_.columns.size()); }
  const Dataset& train() const { return *splits_.train; }
  const std::vector<int64_t>& noisy() const { return noisy_; }

  /// Mean log-likelihood of rows with uniform noise, the same noise each time, nats.
  double log_likelihood(Flow& flow, bool all) const {
    const auto& rows = all ? *splits_.test : *some_;
    const auto stream = dequantized(rows.in_order(1000), noisy_, 17);
    LogLikelihoods found;
    each_log_prob(flow, *stream, [&](const Tensor& log_prob, const Batch&) { found.add(log_prob); });
    return found.mean();
  }

 private:
  Splits splits_;
  DatasetPtr some_;
  std::vector<int64_t> noisy_;
  std::vector<Json> front_;
};

/// Trains for `seconds` of CPU time; at the end the flow has the average of its weights.
std::vector<Point> train(const Task& task, const Method& method, double seconds, const FlowPtr& flow) {
  std::vector<std::shared_ptr<Objective>> objectives;
  for (const auto& spec : method.stages)
    objectives.push_back(std::make_shared<NoisyData>(build_objective(spec, flow), *flow,
                                                     NoisyData::Options{.dequantize = task.noisy()}));
  Optimizer optimizer(flow->parameters(), {.clip_norm = 5, .average = 0.999});
  std::vector<Point> curve;
  double used = 0, next = 0;
  int64_t steps = 0, epoch = 0;
  auto stream = task.train().shuffled(100, 1, epoch);
  const auto note = [&](bool last) {
    optimizer.swap_average();
    curve.push_back({used, -task.log_likelihood(*flow, last), steps});
    std::printf("%s %.1f s %ld steps %.2f nats\n", method.name, used, static_cast<long>(steps), curve.back().nats);
    std::fflush(stdout);
    if (!last) optimizer.swap_average();
  };
  while (used < seconds) {
    if (used >= next) {
      note(false);
      next = std::max(next + seconds / 200, next * 1.15);
    }
    const double begin = diffeo::testing::cpu_seconds(), part = used / seconds;
    Batch batch;
    while (!stream->next(batch)) stream = task.train().shuffled(100, 1, ++epoch);
    auto& objective = *objectives[std::min(objectives.size() - 1, static_cast<size_t>(part * objectives.size()))];
    optimizer.zero_grad();
    objective.loss(batch).backward();
    const double norm = optimizer.grad_norm().item<double>();
    const double rate = method.learning_rate * std::min(1.0, (steps + 1) / 100.0) * 0.5 * (1 + std::cos(M_PI * part));
    if (std::isfinite(norm)) optimizer.step(rate, norm);
    used += diffeo::testing::cpu_seconds() - begin;
    ++steps;
  }
  note(true);
  return curve;
}

Json objective(const char* type, const Json& options = Json::object()) {
  Json spec = {{"type", type}};
  spec.update(options);
  return spec;
}

Json denoising(double sigma) { return objective("denoising_score_matching", {{"sigma", sigma}}); }

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string file = argc > 1 ? argv[1] : "ebflow_mnist.dat";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
  const Task task(testing::data_file("mnist"));
  const std::vector<Method> methods{
      {"maximum_likelihood", {objective("maximum_likelihood")}, 1e-3},
      {"sliced_score_matching", {objective("sliced_score_matching")}, 3e-4},
      {"denoising_score_matching", {denoising(0.5)}, 1e-4},
      {"finite_difference_score_matching", {objective("finite_difference_score_matching", {{"xi", 1.0}})}, 3e-6},
  };
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) {
    std::printf("cannot write %s\n", file.c_str());
    return 1;
  }
  std::map<std::string, Point> ends;
  for (const auto& method : methods) {
    if (argc > 3 && std::string(method.name) != argv[3]) continue;
    torch::manual_seed(1);
    const auto flow = task.flow();
    const auto curve = train(task, method, seconds, flow);
    std::fprintf(out, "# %s: seconds, nats of the test rows, steps\n", method.name);
    // The last one is of all test rows, and no point of the curve.
    for (size_t i = 0; i + 1 < curve.size(); ++i)
      std::fprintf(out, "%.2f %.3f %ld\n", curve[i].seconds, curve[i].nats, static_cast<long>(curve[i].steps));
    std::fprintf(out, "\n\n");
    std::fflush(out);
    ends[method.name] = curve.back();
  }
  std::fclose(out);
  std::printf("%-34s %9s %9s %12s %9s\n", "objective", "steps", "ms/step", "nats", "bits/dim");
  for (const auto& [name, end] : ends)
    std::printf("%-34s %9ld %9.2f %12.2f %9.4f\n", name.c_str(), static_cast<long>(end.steps),
                1e3 * end.seconds / static_cast<double>(end.steps), end.nats,
                end.nats / (static_cast<double>(task.features()) * std::log(2.0)));
  if (ends.size() < methods.size()) return 0;
  diffeo::testing::Acceptance accept;
  const double best = ends["maximum_likelihood"].nats;
  for (const auto& [name, end] : ends)
    if (name != "maximum_likelihood") std::printf("%s: %.2f %% above\n", name.c_str(), 100 * (end.nats / best - 1));
  accept.at_most("ebflow_mnist_ssm_nll_over_ml", ends["sliced_score_matching"].nats / best, 1.015);
  accept.at_most("ebflow_mnist_dsm_nll_over_ml", ends["denoising_score_matching"].nats / best, 1.015);
  return accept.exit_code();
}
