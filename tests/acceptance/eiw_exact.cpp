// What an EIW flow is, to the last digit: the same flow with a fixed permutation where the shuffle stands, the plain
// split where the weights are in order, and no gradient of the likelihood by the solver. Then its penalty alone: where
// minimising it leads is known.
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <cmath>
#include <map>

#include "accept.h"
#include "diffeo/flows/recipes.h"
#include "diffeo/layers/base/penalty.h"
#include "diffeo/layers/shuffle/eiw_shuffle.h"
#include "diffeo/trainers/fit.h"

namespace {

using namespace diffeo;

Json image_flow(const std::string& order) {
  return recipe("eiw", {.features = 3 * 16 * 16,
                        .layers = 2,
                        .width = 16,
                        .image = {3, 16, 16},
                        .layout = "nhwc",
                        .levels = 3,
                        .order = order});
}

/// The shuffles in a spec, each replaced by what `body` makes of it, in order.
void each_shuffle(Json& spec, const std::function<void(Json&)>& body) {
  if (spec.is_object() && spec.value("type", Json()) == "eiw_shuffle") body(spec);
  if (spec.is_structured())
    for (auto& part : spec) each_shuffle(part, body);
}

std::vector<EiwShuffle*> shuffles_in(Flow& flow) {
  std::vector<EiwShuffle*> found;
  for (const auto& module : flow.modules())
    if (auto* shuffle = dynamic_cast<EiwShuffle*>(module.get())) found.push_back(shuffle);
  return found;
}

/// Makes the solver prefer channels in this order.
void prefer(EiwShuffle& layer, const Tensor& order) {
  torch::NoGradGuard no_grad;
  const auto channels = order.numel();
  layer.named_parameters()["solver_hidden"].fill_(1.0 / static_cast<double>(channels));
  for (int64_t i = 0; i < channels; ++i)
    layer.named_parameters()["solver_out"][order[i].item<int64_t>()].fill_(0.01 * static_cast<double>(channels - i));
}

/// Values of all parameters that both have.
void copy_common(const Flow& from, Flow& to) {
  torch::NoGradGuard no_grad;
  std::map<std::string, Tensor> there;
  for (const auto& [name, tensor] : named_state(from)) there[name] = tensor;
  for (const auto& [name, tensor] : named_state(to))
    if (const auto found = there.find(name); found != there.end() && found->second.sizes() == tensor.sizes())
      Tensor(tensor).copy_(found->second);
}

void exactness(diffeo::testing::Acceptance& accept) {
  torch::manual_seed(5);
  auto flow = build_flow(image_flow("eiw"));
  {
    torch::NoGradGuard no_grad;
    for (auto& parameter : flow->parameters()) parameter.add_(torch::randn_like(parameter), 0.05);
  }
  flow->to(torch::kFloat64);
  flow->eval();
  const auto x = torch::randn({32, flow->space().size()}, torch::kFloat64);

  std::vector<Tensor> orders;
  for (auto* shuffle : shuffles_in(*flow)) {
    orders.push_back(torch::randperm(shuffle->domain().event[0]));
    prefer(*shuffle, orders.back());
  }
  size_t next = 0;
  auto fixed_spec = image_flow("eiw");
  each_shuffle(fixed_spec, [&](Json& spec) {
    const auto& order = orders.at(next++);
    const std::vector<int64_t> list(order.data_ptr<int64_t>(), order.data_ptr<int64_t>() + order.numel());
    spec = {{"type", "channelwise"},
            {"shape", spec["shape"]},
            {"layer", {{"type", "permutation"}, {"features", order.numel()}, {"kind", "fixed"}, {"order", list}}}};
  });
  auto fixed = build_flow(fixed_spec), plain = build_flow(image_flow("static"));
  for (auto* other : {fixed.get(), plain.get()}) {
    other->to(torch::kFloat64);
    other->eval();
    copy_common(*flow, *other);
  }
  accept.at_least("eiw_exact_transitions", static_cast<double>(orders.size()), 2);
  const auto log_prob = flow->log_prob(x);
  accept.at_most("eiw_exact_hard_wired_permutation", (log_prob - fixed->log_prob(x)).abs().max().item<double>(), 1e-12);
  double distance = (log_prob - plain->log_prob(x)).abs().max().item<double>();
  accept.at_least("eiw_exact_order_matters", distance, 1e-3);

  const auto grads = torch::autograd::grad({-log_prob.mean()}, flow->parameters(), {}, {}, false, true);
  double by_solver = 0;
  for (size_t i = 0; i < grads.size(); ++i) {
    const auto name = flow->named_parameters()[i].key();
    const bool weights = name.find("solver") != std::string::npos || name.find("guider") != std::string::npos;
    if (weights && grads[i].defined()) by_solver = std::fmax(by_solver, grads[i].abs().max().item<double>());
  }
  accept.at_most("eiw_exact_gradient_by_solver", by_solver, 0);

  torch::NoGradGuard no_grad;
  double returned = 0;
  for (auto* shuffle : shuffles_in(*flow)) {
    const auto shape = shuffle->domain().event;
    const auto image = torch::randn({8, shape[0], shape[1], shape[2]}, torch::kFloat64);
    const auto there = shuffle->forward(image);
    returned = std::fmax(returned, (shuffle->inverse(there.value).value - image).abs().max().item<double>());
    returned = std::fmax(returned, there.log_det.abs().max().item<double>());
    prefer(*shuffle, torch::arange(shape[0]));
  }
  accept.at_most("eiw_exact_shuffle_returns", returned, 0);
  accept.at_most("eiw_exact_sorted_is_plain_split", (flow->log_prob(x) - plain->log_prob(x)).abs().max().item<double>(),
                 0);
}

/// The penalty of one shuffle on images that stay as they are.
class PenaltyAlone : public Objective {
 public:
  explicit PenaltyAlone(const EiwShuffle::Options& options)
      : layer_(register_module("layer", std::make_shared<EiwShuffle>(options))) {}
  Tensor loss(const Batch& batch) override {
    const Penalties penalties;
    layer_->forward(batch.x);
    return penalties.sum();
  }

 private:
  std::shared_ptr<EiwShuffle> layer_;
};

double least_penalty(const std::string& regulariser, int64_t seed) {
  torch::manual_seed(seed);
  PenaltyAlone objective({.shape = {8, 4, 4}, .regulariser = regulariser, .reduction = 4});
  const auto images = torch::randn({64, 8, 1, 1}) + 0.5 * torch::randn({64, 8, 4, 4});
  fit(objective, *in_memory({.x = images}), nullptr,
      {.batch_size = 64, .steps = 4000, .learning_rate = 1e-2, .checkpoint_seconds = 0, .seed = 1});
  objective.train();
  return objective.loss({.x = images}).item<double>();
}

void regulariser(diffeo::testing::Acceptance& accept) {
  constexpr double channels = 8;
  for (int64_t seed : {1, 2, 3}) {
    const auto name = [&](const char* claim) { return claim + std::string("_seed") + std::to_string(seed); };
    accept.at_most(name("eiw_kl_reaches_zero"), least_penalty("kl", seed), 1e-3);
    const double coded = least_penalty("as_coded", seed);
    accept.at_least(name("eiw_as_coded_above_infimum"), coded, -std::log(channels - 1 + std::exp(1.0)) - 1e-4);
    accept.at_most(name("eiw_as_coded_below_uniform"), coded, -std::log(channels) - 1 / channels + 1e-4);
  }
}

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  exactness(accept);
  regulariser(accept);
  return accept.exit_code();
}
