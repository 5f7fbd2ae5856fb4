// Free-form injective flows on real data, beside principal components of the same latent dimension: reconstruction of
// rows that had no part in training, likelihood on the manifold, and samples.
#include <torch/types.h>

#include <cmath>

#include "accept.h"
#include "diffeo/data/splits.h"
#include "diffeo/flows/likelihood.h"
#include "diffeo/flows/preprocess.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/trainers/fit.h"
#include "diffeo/trainers/free_form_injective.h"

namespace {

using namespace diffeo;

Tensor all_rows(const Dataset& data) {
  std::vector<Tensor> parts;
  const auto stream = data.in_order(8192);
  for (Batch batch; stream->next(batch);) parts.push_back(batch.x);
  return torch::cat(parts);
}

/// Mean and covariance of rows.
struct Moments {
  Tensor mean, covariance;
};
Moments moments_of(const Tensor& rows) {
  const auto x = rows.to(torch::kFloat64);
  const auto mean = x.mean(0), centred = x - mean;
  return {mean, centred.t().matmul(centred) / static_cast<double>(x.size(0) - 1)};
}

Tensor root_of(const Tensor& covariance) {
  const auto [values, vectors] = torch::linalg_eigh(covariance);
  return (vectors * values.clamp_min(0).sqrt()).matmul(vectors.t());
}

/// Wasserstein-2 distance of the normal distributions with these moments.
double wasserstein(const Moments& a, const Moments& b) {
  const auto root = root_of(a.covariance);
  const auto cross = root_of(root.matmul(b.covariance).matmul(root));
  const double squared =
      ((a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2 * cross.trace())
          .item<double>();
  return std::sqrt(std::max(0.0, squared));
}

struct Task {
  const char* data;
  const char* preprocess;
  int64_t latent, width, depth, steps, batch;
  double learning_rate, beta;
};

void run(const Task& task, diffeo::testing::Acceptance& accept) {
  DataOptions where;
  where.file = diffeo::testing::data_file(task.data);
  const auto splits = load_splits(where, torch::kFloat32);
  const auto features = static_cast<int64_t>(splits.columns.size());
  auto spec =
      recipe("injective", {.features = features, .latent = task.latent, .width = task.width, .depth = task.depth});
  auto layers = preprocessing({.preprocess = task.preprocess}, splits.columns, *splits.train);
  for (const auto& layer : spec["layers"]) layers.push_back(layer);
  spec["layers"] = layers;
  torch::manual_seed(1);
  const auto flow = build_flow(spec);
  FreeFormInjective objective(flow, {.beta = task.beta, .noise = 0.01});
  const auto report = fit(objective, *splits.train, splits.valid.get(),
                          {.batch_size = task.batch,
                           .steps = task.steps,
                           .learning_rate = task.learning_rate,
                           .clip_norm = 5,
                           .evaluate_every = 1000,
                           .checkpoint_seconds = 0,
                           .seed = 1});

  torch::NoGradGuard no_grad;
  ManifoldFit found;
  const auto stream = splits.test->in_order(2048);
  each_projection(*flow, *stream, [&](const Projection& p, const Batch& batch) { found.add(p, batch); });

  // In the units behind the preprocessing, in which both are trained.
  const auto front = build_layer(layers.front());
  const auto standardized = [&](const Tensor& x) { return front->forward(x).value; };
  const auto train = standardized(all_rows(*splits.train)), test = standardized(all_rows(*splits.test));
  const auto moments = moments_of(train);
  const auto [values, vectors] = torch::linalg_eigh(moments.covariance);
  const auto components = vectors.narrow(1, features - task.latent, task.latent);
  const auto centred = test.to(torch::kFloat64) - moments.mean;
  const double pca =
      (centred - centred.matmul(components).matmul(components.t())).square().sum(-1).mean().item<double>();
  const auto projected = standardized(flow->project(all_rows(*splits.test)).value);
  const double ours = (projected - test).square().sum(-1).to(torch::kFloat64).mean().item<double>();

  const auto test_moments = moments_of(test);
  const auto samples = standardized(flow->sample(test.size(0) > 20000 ? test.size(0) : 20000));
  const auto kept = values.narrow(0, features - task.latent, task.latent);
  const Moments of_components{moments.mean, (components * kept).matmul(components.t())};
  const double by_samples = wasserstein(moments_of(samples), test_moments),
               by_components = wasserstein(of_components, test_moments), by_train = wasserstein(moments, test_moments);
  std::printf("%s: %ld features, latent %ld, %ld steps in %.0f s\n", task.data, static_cast<long>(features),
              static_cast<long>(task.latent), static_cast<long>(report.steps), report.seconds);
  std::printf("  squared distance of test rows %.4f, of principal components %.4f\n", ours, pca);
  std::printf("  log-likelihood on the manifold %.3f +- %.3f nats\n", found.log_likelihoods().mean(),
              found.log_likelihoods().standard_error());
  std::printf("  Wasserstein-2 of moments to test rows: samples %.4f, normal of components %.4f, training rows %.4f\n",
              by_samples, by_components, by_train);
  const std::string name = task.data;
  accept.at_most(name + "_reconstruction_over_components", ours / pca, 1);
  accept.at_most(name + "_likelihood_is_finite", std::isfinite(found.log_likelihoods().mean()) ? 0 : 1, 0);
  if (name != "mnist") accept.at_most(name + "_wasserstein_over_components", by_samples / by_components, 1);
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  run({"uci_magic", "standardize", 3, 128, 3, 6000, 256, 1e-3, 10}, accept);
  run({"miniboone_head", "standardize", 21, 128, 3, 6000, 256, 1e-3, 10}, accept);
  run({"mnist", "isotropic", 16, 256, 3, 3000, 256, 1e-3, 1}, accept);
  return accept.exit_code();
}
