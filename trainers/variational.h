#pragma once

#include "diffeo/layers/base/log_density.h"
#include "diffeo/trainers/objective.h"

// What the two Kullback-Leibler divergences between a flow and a target have in common.
namespace diffeo {

/// Throws Error, beginning with `who`, unless the flow and the target live on the same space and the flow takes no
/// context and consists of bijections. With `path` the flow must also treat the rows of a batch one by one and have no
/// dropout: a gradient of one point's density means nothing otherwise.
void check_variational(const std::string& who, Flow& flow, const LogDensity& target, bool path);

/// Throws Error that names the first row where log density or gradient is not finite. `what` are the points, in words.
void check_finite(const std::string& who, const std::string& what, const Tensor& x, const Sloped& density);

/// `value` (scalar, its graph left out), with the gradient of sum(points * by_points): a loss whose derivatives by what
/// made `points` (*batch, *event) are given by those by the points.
Tensor with_gradient(const Tensor& value, const Tensor& points, const Tensor& by_points);

/// Takes a target to the precision and the device of a flow, where it is not there yet.
void follow(LogDensity& target, const Flow& flow);

/// The target that the option `target` of the objective `who` describes. Throws SpecError where it is not given.
LogDensityPtr target_in(const std::string& who, const Json& spec);

}  // namespace diffeo
