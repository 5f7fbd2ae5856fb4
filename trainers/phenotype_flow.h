#pragma once

#include "diffeo/trainers/dependent_likelihood.h"

namespace diffeo {

/// How a flow of one phenotype is trained.
struct PhenotypeFlowOptions {
  int64_t bins = 8;
  int64_t steps = 150;
  double learning_rate = 0.01;
  double dependence = -1;
  uint64_t seed = 0;
  static constexpr auto fields() {
    using O = PhenotypeFlowOptions;
    return std::tuple{
        optional("bins", &O::bins, "bins of the spline that is learned"),
        optional("steps", &O::steps, "steps of training, each on all individuals"),
        optional("learning_rate", &O::learning_rate, "of the flow, at first"),
        optional("dependence", &O::dependence, "its strength, 0 to 0.99; below 0: learned in turns with the flow")};
  }
};

struct PhenotypeFlow {
  FlowPtr flow;         ///< on (1), float64, in evaluation mode
  double strength = 0;  ///< of the dependence: the share of the variance of the transformed phenotype that goes with K
};

/// Learns the increasing map that makes a phenotype (n) normal when relatives are normally correlated: the
/// rank-based inverse normal transform as a spline, and after it one that learns by DependentLikelihood.
/// `relatedness` says how its individuals are related. Throws Error for values that are not finite or all the same.
PhenotypeFlow fit_phenotype_flow(const Tensor& phenotype, RowDependencePtr relatedness,
                                 const PhenotypeFlowOptions& options = {});

/// The phenotype after the flow, (n) in float64. Throws Error for a flow of more than one feature, or with a context.
Tensor transformed(Flow& flow, const Tensor& phenotype);

}  // namespace diffeo
