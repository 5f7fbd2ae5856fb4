#pragma once

#include "diffeo/flows/flow.h"
#include "diffeo/trainers/fair/classifier.h"

namespace diffeo {

/// The notions of fairness that a certificate can be about.
///
///   demographic_parity   the group cannot be told from the representation
///   equal_opportunity    nor can it among the rows of label 1
///   equalized_odds       nor among those of label 0 and among those of label 1
std::vector<int64_t> labels_of(const std::string& criterion);  ///< {-1} (all rows), {1}, or {0, 1}; throws SpecError

/// Fair normalizing flows: an encoder for each group of rows, a bijection, so that densities of representations are
/// exact, and a classifier of the label on them.
///
///   z = f_a(x),   log p_Za(z) = log p_a(f_a^-1(z)) + log|det d f_a^-1(z) / dz|
///
/// The encoders are couplings with the same masks and begin with the same weights. With a small `init_scale` all
/// beginnings are about the identity, and restarts are alike; with 1, as published, each begins somewhere else.
///
/// Balunovic, Ruoss and Vechev, "Fair normalizing flows", 2022, https://arxiv.org/abs/2106.05937, section 4.
class FairFlow : public Module {
 public:
  struct Options {
    int64_t features = 0;
    int64_t groups = 2;
    int64_t layers = 6;
    int64_t width = 50;
    int64_t depth = 2;
    std::string map = "affine";
    double cap = 1;
    double init_scale = 0.1;
    int64_t classifier_width = 100;
    int64_t classifier_depth = 1;
    int64_t mask_seed = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("features", &O::features, "D, at least 2"),
                        optional("groups", &O::groups, "values of the sensitive attribute"),
                        optional("layers", &O::layers, "couplings of an encoder"),
                        optional("width", &O::width, "units in each hidden layer of the couplings"),
                        optional("depth", &O::depth, "hidden layers of the couplings"),
                        optional("map", &O::map, "univariate map of the couplings: affine or rq_spline"),
                        optional("cap", &O::cap, "bound on the log scale of an affine coupling"),
                        optional("init_scale", &O::init_scale,
                                 "of the couplings' last weights: the larger, the farther from the identity, and from "
                                 "other restarts, training begins"),
                        optional("classifier_width", &O::classifier_width, "units in each hidden layer"),
                        optional("classifier_depth", &O::classifier_depth, "hidden layers of the classifier"),
                        optional("mask_seed", &O::mask_seed, "seed of the masks, which all encoders share")};
    }
  };

  /// Throws SpecError for options out of range.
  explicit FairFlow(const Options& options);

  /// z (*batch, D) and log|det dz/dx| of points x of one group.
  Mapped encode(const Tensor& x, int64_t group);
  /// x and log|det dx/dz|.
  Mapped decode(const Tensor& z, int64_t group);
  /// z (n, D) of rows x (n, D) with their groups (n), int64.
  Tensor encode_rows(const Tensor& x, const Tensor& group);
  /// Logits (n, 2) of the label.
  Tensor classify(const Tensor& z) { return classifier_->forward(z); }
  const ClassifierPtr& classifier() const { return classifier_; }

  int64_t groups() const { return options_.groups; }
  int64_t features() const { return options_.features; }
  Json spec() const { return write("fair_flow", options_); }
  const Options& options() const { return options_; }

 private:
  const LayerPtr& encoder(int64_t group) const;

  Options options_;
  std::vector<LayerPtr> encoders_;
  ClassifierPtr classifier_;
};
using FairFlowPtr = std::shared_ptr<FairFlow>;

/// Densities p_a(x), or p_a(x | y) for each label y of a criterion: one of each stratum (label) and group.
using GroupDensities = std::vector<std::vector<DistributionPtr>>;  ///< [stratum][group]

/// log p_Zb(z), (n, K) in nats, for all K groups b at points z (n, D).
Tensor latent_log_densities(FairFlow& model, const std::vector<DistributionPtr>& densities, const Tensor& z);

/// The same for each group's own draws: `[a]` (n, K) at z = f_a(x), x ~ p_a, in passes of at most `pass` rows.
std::vector<Tensor> drawn_log_densities(FairFlow& model, const std::vector<DistributionPtr>& densities, int64_t samples,
                                        int64_t pass = 8192);

}  // namespace diffeo
