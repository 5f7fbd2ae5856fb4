#include "diffeo/trainers/fair/fair_flow.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>

namespace diffeo {
namespace {

/// A coupling that moves, in turn, a random half of the features and the other half.
Json coupling_of(const FairFlow::Options& options, int64_t i) {
  Json map = {{"type", options.map}};
  if (options.map == "affine") map["cap"] = options.cap;
  if (options.map == "rq_spline") map["bound"] = 6.0;
  return {{"type", "coupling"},
          {"features", options.features},
          {"map", map},
          {"net", {{"width", options.width}, {"depth", options.depth}, {"init_scale", options.init_scale}}},
          {"mask", options.features == 2 ? "half" : "random"},
          {"flip", i % 2 == 1},
          {"mask_seed", options.mask_seed + i / 2}};
}

}  // namespace

std::vector<int64_t> labels_of(const std::string& criterion) {
  check_choice("criterion", criterion, {"demographic_parity", "equal_opportunity", "equalized_odds"});
  if (criterion == "equal_opportunity") return {1};
  if (criterion == "equalized_odds") return {0, 1};
  return {-1};
}

FairFlow::FairFlow(const Options& options) : options_(options) {
  at_least(2, "features", options.features);
  at_least(2, "groups", options.groups);
  at_least(1, "layers", options.layers);
  check_choice("map", options.map, {"affine", "rq_spline"});
  if (!(options.init_scale >= 0))
    throw SpecError("init_scale", c10::str("must not be negative, got ", options.init_scale));
  Json layers = Json::array();
  for (int64_t i = 0; i < options.layers; ++i) layers.push_back(coupling_of(options, i));
  for (int64_t a = 0; a < options.groups; ++a) {
    encoders_.push_back(
        register_module("encoder" + std::to_string(a), build_layer({{"type", "sequential"}, {"layers", layers}})));
    copy_state(*encoders_[0], *encoders_[a]);
  }
  classifier_ = register_module(
      "classifier",
      std::make_shared<Classifier>(options.features, 2, options.classifier_width, options.classifier_depth));
}

const LayerPtr& FairFlow::encoder(int64_t group) const {
  check(group >= 0 && group < options_.groups, "fair_flow: there is no group ", group, "; the groups are 0 to ",
        options_.groups - 1);
  return encoders_[group];
}

Mapped FairFlow::encode(const Tensor& x, int64_t group) { return encoder(group)->forward(x); }

Mapped FairFlow::decode(const Tensor& z, int64_t group) { return encoder(group)->inverse(z); }

Tensor FairFlow::encode_rows(const Tensor& x, const Tensor& group) {
  check(x.dim() == 2 && group.sizes() == x.sizes().slice(0, 1), "fair_flow: expected rows (n, D) and groups (n), got ",
        x.sizes(), " and ", group.sizes());
  std::vector<Tensor> parts, places;
  for (int64_t a = 0; a < options_.groups; ++a) {
    places.push_back((group == a).nonzero().flatten());
    if (places.back().size(0) > 0) parts.push_back(encode(x.index_select(0, places.back()), a).value);
  }
  const auto place = at::cat(places);
  check(place.size(0) == x.size(0), "fair_flow: groups must be 0 to ", options_.groups - 1);
  if (parts.empty()) return at::empty_like(x);
  return at::cat(parts).index_select(0, place.argsort());
}

Tensor latent_log_densities(FairFlow& model, const std::vector<DistributionPtr>& densities, const Tensor& z) {
  std::vector<Tensor> each;
  for (int64_t b = 0; b < model.groups(); ++b) {
    const auto [x, log_det] = model.decode(z, b);
    each.push_back(densities[b]->log_prob(x) + log_det);
  }
  return at::stack(each, -1);
}

std::vector<Tensor> drawn_log_densities(FairFlow& model, const std::vector<DistributionPtr>& densities, int64_t samples,
                                        int64_t pass) {
  const at::NoGradGuard no_grad;
  std::vector<Tensor> all;
  for (int64_t a = 0; a < model.groups(); ++a) {
    std::vector<Tensor> parts;
    for (int64_t done = 0; done < samples; done += pass) {
      const auto z = model.encode(densities[a]->sample(std::min(pass, samples - done)), a).value;
      parts.push_back(latent_log_densities(model, densities, z));
    }
    all.push_back(at::cat(parts));
  }
  return all;
}

}  // namespace diffeo
