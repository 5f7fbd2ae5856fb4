#pragma once

#include "diffeo/flows/energy.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// What objectives on the energy of a flow share.
struct EnergyOptions {
  double energy_weight = 0;
  bool per_dimension = true;
  bool match_after_preprocessing = true;
  static constexpr auto fields() {
    using O = EnergyOptions;
    return std::tuple{
        optional("energy_weight", &O::energy_weight, "lambda: lambda E(x) is added to the loss of each row"),
        optional("per_dimension", &O::per_dimension,
                 "divide losses by the number of dimensions, so that learning rates and clipping need not know it"),
        optional("match_after_preprocessing", &O::match_after_preprocessing,
                 "match the density of the points after those layers at the front that learn nothing")};
  }
};

/// Training of a flow as an energy-based model (flows/energy.h): no loss asks for a constant log-determinant.
///
/// Scores are matched after the layers at the front that learn nothing (standardisation, logits): where they are
/// steep, scores of the data explode, and matching there is blind to what the flow could learn. The Fisher divergence
/// vanishes before them if and only if it does after them.
///
/// Chao et al., "Training energy-based normalizing flow with score-matching objectives", 2023,
/// https://arxiv.org/abs/2305.15267, section 4.3.
class EnergyObjective : public Objective {
 public:
  /// The (weighted) mean over rows of the objective plus energy_weight E, over D with `per_dimension`.
  Tensor loss(const Batch& batch) override;

 protected:
  /// Throws Error for a flow that has no energy, SpecError for a weight that is no number.
  EnergyObjective(FlowPtr flow, const EnergyOptions& options);

  Energy& energy() { return *energy_; }
  double dimensions() const { return static_cast<double>(energy_->space().size()); }

 private:
  /// The objective of each row, (B), at points (B, *event), which ask for gradients, given a context. `learns` says
  /// whether its parameter gradient is wanted.
  virtual Tensor row_losses(const Tensor& points, const Tensor& context, bool learns) = 0;

  EnergyOptions options_;
  FlowPtr flow_;
  std::shared_ptr<Energy> energy_;  ///< of `flow_`, and so no child of its own
};

/// Exact score matching: the mean of 1/2 |s|^2 + tr(ds/dx), which takes D derivatives of the score.
///
/// Hyvarinen, "Estimation of non-normalized statistical models by score matching", 2005, eq. 4.
class ScoreMatching : public EnergyObjective {
 public:
  using Options = EnergyOptions;
  explicit ScoreMatching(FlowPtr flow, const Options& options = {});

 private:
  Tensor row_losses(const Tensor& points, const Tensor& context, bool learns) override;
};

/// Sliced score matching: the mean of 1/2 |s|^2 + v^T (ds/dx) v over vectors v of random signs.
///
/// Song et al., "Sliced score matching", 2019, https://arxiv.org/abs/1905.07088, eq. 8.
class SlicedScoreMatching : public EnergyObjective {
 public:
  struct Options : EnergyOptions {
    int64_t slices = 1;
    static constexpr auto fields() {
      return std::tuple_cat(std::tuple{optional("slices", &Options::slices, "random vectors for each row")},
                            EnergyOptions::fields());
    }
  };
  explicit SlicedScoreMatching(FlowPtr flow, const Options& options);

 private:
  Tensor row_losses(const Tensor& points, const Tensor& context, bool learns) override;

  int64_t slices_;
};

/// Denoising score matching: the mean of 1/2 |s(x + sigma e) + e / sigma|^2 over normal e. What is learned is the
/// density of the data with noise of deviation sigma.
///
/// Vincent, "A connection between score matching and denoising autoencoders", 2011, section 4.3.
class DenoisingScoreMatching : public EnergyObjective {
 public:
  struct Options : EnergyOptions {
    double sigma = 0.1;
    static constexpr auto fields() {
      return std::tuple_cat(
          std::tuple{optional("sigma", &Options::sigma, "deviation of the noise, where the score is matched; above 0")},
          EnergyOptions::fields());
    }
  };
  explicit DenoisingScoreMatching(FlowPtr flow, const Options& options);

 private:
  Tensor row_losses(const Tensor& points, const Tensor& context, bool learns) override;

  double sigma_;
};

/// Finite-difference sliced score matching, with energies in place of derivatives: the mean over directions e of
/// length xi of
///
///   D / xi^2 [ (E(x + e) - E(x - e))^2 / 8 + 2 E(x) - E(x + e) - E(x - e) ],
///
/// which is score matching up to O(xi^2).
///
/// Pang et al., "Efficient learning of generative models via finite-difference score matching", 2020,
/// https://arxiv.org/abs/2007.03317, eq. 10.
class FiniteDifferenceScoreMatching : public EnergyObjective {
 public:
  struct Options : EnergyOptions {
    double xi = 0.1;
    static constexpr auto fields() {
      return std::tuple_cat(std::tuple{optional("xi", &Options::xi, "length of the differences, above 0")},
                            EnergyOptions::fields());
    }
  };
  explicit FiniteDifferenceScoreMatching(FlowPtr flow, const Options& options);

 private:
  Tensor row_losses(const Tensor& points, const Tensor& context, bool learns) override;

  double xi_;
};

/// Maximum likelihood without the normalising constant: E(x) - E(x'), x' drawn from the model by its inverse and held
/// fixed. Its gradient is that of the likelihood in expectation; its value is no measure of anything, so in evaluations
/// the loss is minus the log likelihood itself, in nats.
///
/// Chao et al. 2023, eq. 12.
class SelfMaximumLikelihood : public EnergyObjective {
 public:
  using Options = EnergyOptions;
  explicit SelfMaximumLikelihood(FlowPtr flow, const Options& options = {});

 private:
  Tensor row_losses(const Tensor& points, const Tensor& context, bool learns) override;
};

}  // namespace diffeo
