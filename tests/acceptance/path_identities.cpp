// Path gradients by one pass are those by two, for both divergences; the scores carried along are those that autograd
// finds; where the target is the flow itself they vanish for every batch, which only right signs do; and they are
// unbiased.
#include "accept.h"
#include "path.h"

namespace {

using namespace diffeo;
using namespace diffeo::testing;

const ReverseKl::Options reverse(const char* estimator) { return {.estimator = estimator}; }
const ForwardKl::Options forward(const char* estimator) { return {.estimator = estimator}; }

void identities(Acceptance& accept, const std::string& name, const Couplings& shape) {
  torch::manual_seed(11);
  const auto flow = couplings(shape);
  // Not further: bins narrowed to their least width lose digits, whichever way the score is found.
  shake(*flow, 0.05);
  const auto target = many_modes(shape.features);
  const Batch batch{.x = sample_many_modes(64, shape.features)};

  ReverseKl one(flow, target, reverse("path")), two(flow, target, reverse("path_two_pass"));
  accept.at_most(name + "_reverse_one_pass_is_two",
                 largest(gradient(one, *flow, batch, 1) - gradient(two, *flow, batch, 1)), 1e-10);
  ForwardKl there(flow, target, forward("path")), and_back(flow, target, forward("path_two_pass"));
  accept.at_most(name + "_forward_one_pass_is_two",
                 largest(gradient(there, *flow, batch, 1) - gradient(and_back, *flow, batch, 1)), 1e-10);

  torch::manual_seed(2);
  const auto [x, log_q, score] = flow->draw_with_score({64});
  const auto by_autograd = score_of(*flow, x);
  accept.at_most(name + "_score_is_that_of_autograd", largest(score - by_autograd.gradient), 1e-10);
  accept.at_most(name + "_log_prob_is_that_of_the_flow", largest(log_q - by_autograd.log_prob), 1e-10);
  torch::manual_seed(2);
  const auto plain = flow->draw({64});
  accept.at_most(name + "_draws_are_those_of_the_plain_pass", largest(x - plain.value), 1e-12);
  const auto latent = flow->to_latent_with_score(batch.x, torch::zeros_like(batch.x));
  const auto plain_latent = flow->to_latent(batch.x);
  accept.at_most(name + "_latents_are_those_of_the_plain_pass",
                 largest(latent.value - plain_latent.value) + largest(latent.log_det - plain_latent.log_det), 1e-12);

  // The flow itself, with parameters of its own, as the target.
  const auto copy = build_flow(flow->spec());
  copy->to(torch::kFloat64);
  copy_state(*flow, *copy);
  const auto itself = std::make_shared<FlowDensity>(copy);
  const auto norm = [&](Objective& objective, const Tensor& points) {
    return gradient(objective, *flow, {.x = points}, 3).norm().item<double>();
  };
  const auto own = plain.value.detach();
  ReverseKl path(flow, itself, reverse("path")), standard(flow, itself, reverse("reparametrised"));
  accept.at_most(name + "_reverse_path_gradient_at_the_optimum", norm(path, own), 1e-10);
  accept.at_least(name + "_reverse_standard_gradient_at_the_optimum", norm(standard, own), 0.1);
  ForwardKl forward_path(flow, itself, forward("path")), likelihood(flow, itself, forward("maximum_likelihood"));
  accept.at_most(name + "_forward_path_gradient_at_the_optimum", norm(forward_path, own), 1e-10);
  accept.at_least(name + "_forward_standard_gradient_at_the_optimum", norm(likelihood, own), 0.1);
}

/// Over many batches: the mean difference of two estimators in units of its own error, the root of its mean square over
/// all parameters; and how much more the first one scatters.
void unbiased(Acceptance& accept, const std::string& name, Objective& standard, Objective& path, Flow& flow,
              const std::function<Tensor(int64_t)>& points) {
  const int64_t batches = 400, rows = 1000;
  Tensor sum, squares, scatter_standard, scatter_path, mean_standard, mean_path;
  const auto add = [](Tensor& to, const Tensor& value) { to = to.defined() ? to + value : value.clone(); };
  for (int64_t i = 0; i < batches; ++i) {
    torch::manual_seed(100 + i);
    const Batch batch{.x = points(rows)};
    const auto a = gradient(standard, flow, batch, 1000 + i), b = gradient(path, flow, batch, 1000 + i);
    add(sum, a - b);
    add(squares, (a - b).square());
    add(mean_standard, a);
    add(mean_path, b);
    add(scatter_standard, a.square());
    add(scatter_path, b.square());
  }
  const double n = batches;
  const auto mean = sum / n, variance = (squares / n - mean.square()) * (n / (n - 1));
  const auto z = mean / (variance / n).sqrt();
  const double rms = z.square().masked_select(variance > 0).mean().sqrt().item<double>();
  accept.at_least(name + "_unbiased_rms_z_from_below", rms, 0.7);
  accept.at_most(name + "_unbiased_rms_z_from_above", rms, 1.3);
  const auto total = [&](const Tensor& of_squares, const Tensor& of_sums) {
    return (of_squares / n - (of_sums / n).square()).sum().item<double>();
  };
  accept.at_least(name + "_variance_of_standard_over_path",
                  total(scatter_standard, mean_standard) / total(scatter_path, mean_path), 1);
}

}  // namespace

int main() {
  Acceptance accept;
  identities(accept, "affine", {});
  identities(accept, "spline", {.map = {{"type", "rq_spline"}, {"bins", 6}, {"bound", 4.0}}});
  identities(accept, "sigmoids", {.count = 3, .map = {{"type", "sigmoid_mixture"}}});
  identities(accept, "inverted_sigmoids", {.count = 3, .map = {{"type", "sigmoid_mixture"}}, .inverted = true});

  torch::manual_seed(5);
  const auto flow = couplings({.count = 4, .width = 16, .depth = 1});
  shake(*flow, 0.1);
  const auto target = many_modes(6);
  const auto points = [](int64_t rows) { return sample_many_modes(rows, 6); };
  ReverseKl standard(flow, target, reverse("reparametrised")), path(flow, target, reverse("path"));
  unbiased(accept, "reverse", standard, path, *flow, points);
  ForwardKl likelihood(flow, target, forward("maximum_likelihood")), forward_path(flow, target, forward("path"));
  unbiased(accept, "forward", likelihood, forward_path, *flow, points);
  return accept.exit_code();
}
