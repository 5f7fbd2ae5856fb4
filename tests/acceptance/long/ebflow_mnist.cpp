// A flow of two matrices on MNIST, D = 784, trained four ways on one thread: by maximum likelihood with
// log-determinants and by three kinds of score matching without, all from the same weights: the last matrix makes the
// latent training rows white. It does so once more at the end, whatever the method (diffeo train --whiten both).
// Learning rates and sigma were chosen on the validation rows. The likelihood of the test rows against the CPU time of
// the training steps, as trained and with the last matrix set, goes to a table, for gnuplot, in the file named by the
// argument (ebflow_mnist.dat unless given).
//
//   accept_ebflow_mnist [FILE [SECONDS FOR EACH METHOD [METHOD LEARNING_RATE [SIGMA or XI]]]]
//
// With a method it is that one alone, and the likelihood is that of validation rows.
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
  Json objective;
  double learning_rate;
};

struct Point {
  double seconds;
  int64_t steps;
  double trained, whitened;  ///< nats of the test rows, as trained and with the last matrix set
};

/// The data, and the layers that stand in front of every flow.
class Task {
 public:
  Task(const std::string& file, bool validates) {
    DataOptions options;
    options.file = file;
    splits_ = load_splits(options, torch::kFloat32);
    // Logits at their own scale: dark and bright pixels lie units apart and are a unit wide. Brought to unit deviation,
    // pixels that are both dark and bright would be a few tenths wide, narrower than the noise of the matching.
    const PreprocessOptions how{
        .preprocess = "none", .transform = {"all=logit:0:256"}, .dequantize = {"all"}, .noise = 0};
    noisy_ = dequantized_columns(how, splits_.columns);
    front_ = preprocessing(how, splits_.columns, *splits_.train);
    if (validates) splits_.test = splits_.valid;
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
    whiten(*flow);
    return flow;
  }
  void whiten(Flow& flow) const { whiten_latent(flow, *dequantized(splits_.train->in_order(1000), noisy_, 5)); }
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
  NoisyData objective(build_objective(method.objective, flow), *flow, NoisyData::Options{.dequantize = task.noisy()});
  Optimizer optimizer(flow->parameters(), {.clip_norm = 5, .average = 0.999});
  std::vector<Point> curve;
  double used = 0, next = 0;
  int64_t steps = 0, epoch = 0;
  auto stream = task.train().shuffled(100, 1, epoch);
  const auto note = [&](bool last) {
    optimizer.swap_average();
    auto& point = curve.emplace_back(used, steps, -task.log_likelihood(*flow, last));
    std::vector<Tensor> trained;
    for (const auto& parameter : flow->parameters()) trained.push_back(parameter.detach().clone());
    const double begin = diffeo::testing::cpu_seconds();
    task.whiten(*flow);
    const double taken = diffeo::testing::cpu_seconds() - begin;
    point.whitened = -task.log_likelihood(*flow, last);
    std::printf("%s %.1f s %ld steps %.2f nats, white %.2f nats (%.1f s)\n", method.name, used,
                static_cast<long>(steps), point.trained, point.whitened, taken);
    std::fflush(stdout);
    if (last) return;
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < trained.size(); ++i) flow->parameters()[i].copy_(trained[i]);
    optimizer.swap_average();
  };
  while (used < seconds) {
    if (used >= next) {
      note(false);
      next = std::max(next + seconds / 200, next * 1.15);
    }
    const double begin = diffeo::testing::cpu_seconds(), part = used / seconds;
    Batch batch;
    while (!stream->next(batch)) stream = task.train().shuffled(100, 1, ++epoch);
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

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const std::string file = argc > 1 ? argv[1] : "ebflow_mnist.dat";
  const double seconds = argc > 2 ? std::atof(argv[2]) : 60;
  const Task task(testing::data_file("mnist"), argc > 4);
  std::vector<Method> methods{
      {"maximum_likelihood", objective("maximum_likelihood"), 1e-3},
      {"sliced_score_matching", objective("sliced_score_matching"), 4e-4},
      {"denoising_score_matching", objective("denoising_score_matching", {{"sigma", 0.5}}), 3e-4},
      {"finite_difference_score_matching", objective("finite_difference_score_matching", {{"xi", 1.0}}), 1e-3},
  };
  if (argc > 4) {
    std::erase_if(methods, [&](const Method& method) { return method.name != std::string(argv[3]); });
    if (methods.empty()) {
      std::printf("unknown method %s; see the table of methods in ebflow_mnist.cpp\n", argv[3]);
      return 2;
    }
    methods[0].learning_rate = std::atof(argv[4]);
    for (const char* scale : {"sigma", "xi"})
      if (argc > 5 && methods[0].objective.contains(scale)) methods[0].objective[scale] = std::atof(argv[5]);
  }
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) {
    std::printf("cannot write %s\n", file.c_str());
    return 1;
  }
  std::map<std::string, Point> ends;
  for (const auto& method : methods) {
    torch::manual_seed(1);
    const auto flow = task.flow();
    const auto curve = train(task, method, seconds, flow);
    std::fprintf(out, "# %s: seconds, nats of the test rows, nats with the last matrix set, steps\n", method.name);
    // The last one is of all test rows, and no point of the curve.
    for (size_t i = 0; i + 1 < curve.size(); ++i)
      std::fprintf(out, "%.2f %.3f %.3f %ld\n", curve[i].seconds, curve[i].trained, curve[i].whitened,
                   static_cast<long>(curve[i].steps));
    std::fprintf(out, "\n\n");
    std::fflush(out);
    ends[method.name] = curve.back();
  }
  std::fclose(out);
  std::printf("%-34s %9s %9s %12s %12s %9s\n", "objective", "steps", "ms/step", "trained", "white, nats", "bits/dim");
  for (const auto& [name, end] : ends)
    std::printf("%-34s %9ld %9.2f %12.2f %12.2f %9.4f\n", name.c_str(), static_cast<long>(end.steps),
                1e3 * end.seconds / static_cast<double>(end.steps), end.trained, end.whitened,
                end.whitened / (static_cast<double>(task.features()) * std::log(2.0)));
  if (ends.size() < methods.size()) return 0;
  diffeo::testing::Acceptance accept;
  const double best = ends["maximum_likelihood"].whitened;
  for (const auto& [name, end] : ends)
    if (name != "maximum_likelihood") std::printf("%s: %.2f %% above\n", name.c_str(), 100 * (end.whitened / best - 1));
  accept.at_most("ebflow_mnist_ssm_nll_over_ml", ends["sliced_score_matching"].whitened / best, 1.015);
  accept.at_most("ebflow_mnist_dsm_nll_over_ml", ends["denoising_score_matching"].whitened / best, 1.015);
  return accept.exit_code();
}
