#pragma once

#include "diffeo/flows/flow.h"

namespace diffeo::bench {

/// A reference work: the sizes of a flow that is timed here and in other libraries (works.json).
struct Work {
  std::string name;
  std::string flow;  ///< nsf (coupled splines), maf or realnvp (affine couplings)
  int64_t features, layers, width, bins, batch;
};

const std::vector<Work>& all_works();
/// Throws Error that lists the works for an unknown name.
const Work& work_named(const std::string& name);

/// Our flow in the architecture that a library builds for this work:
///   plain     two hidden layers; couplings of halves in turn, nothing between them, kept features left alone
///   nflows    residual networks of two blocks; couplings: alternating masks, and for splines LU maps with permutations
///             between and a spline on the kept features too (normflows builds the same)
///   zuko      two hidden layers; halves, permutations, splines on the kept features too
///   glasflow  as nflows without LU maps and without splines on the kept features
///   flowjax   two hidden layers; always the second half is moved, permutations, one bin more
///   FrEIA     two hidden layers; always the same half is moved, then a scale and shift of each feature, permutations
/// Not every library is asked for every work. Throws Error for one that is not.
/// `precision` is that of its conditioners, full or bfloat16.
FlowPtr flow_of(const Work& work, const std::string& like, const std::string& precision = "full");

int64_t count_of_parameters(const torch::nn::Module& module);

}  // namespace diffeo::bench
