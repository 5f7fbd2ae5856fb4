#pragma once

#include "diffeo/layers/base/log_density.h"
#include "diffeo/layers/base/options.h"

namespace diffeo {

/// A schedule of Langevin steps: sizes and temperatures go geometrically from the first value to the last.
struct LangevinOptions {
  int64_t steps = 500;
  double first_step = 1e-2;
  double last_step = 1e-3;
  double first_temperature = 1;
  double last_temperature = 1;
  bool last_without_noise = false;
  static constexpr auto fields() {
    using O = LangevinOptions;
    return std::tuple{
        optional("steps", &O::steps, "number of steps"),
        optional("first_step", &O::first_step, "size of the first step, in units of the points squared; above 0"),
        optional("last_step", &O::last_step, "size of the last step; above 0"),
        optional("first_temperature", &O::first_temperature,
                 "factor of the noise's variance in the first step, not negative; 1: that of the density, 0: none"),
        optional("last_temperature", &O::last_temperature, "the same in the last step"),
        optional("last_without_noise", &O::last_without_noise,
                 "the last step goes uphill only, which takes away the noise that it would leave")};
  }
};

/// Points (*batch, *event) near to a density, from `start` by
///
///   x <- x + alpha d log p / dx + sqrt(2 alpha T) n,   n standard normal,
///
/// with alpha and T of the schedule. No step is refused, so the density that is reached differs from p by O(alpha);
/// points where T = 1 and alpha is small in the end are samples. No graph is kept.
///
/// Where `mask` (*event, or anything that broadcasts to the points) is 0 points stay as they start: what is missing of
/// an image is filled in given what is there (inpainting). Throws SpecError for options out of range, and Error if
/// points leave the finite numbers (the steps are too large).
///
/// Song and Ermon, "Generative modeling by estimating gradients of the data distribution", 2019,
/// https://arxiv.org/abs/1907.05600, algorithm 1.
Tensor annealed_langevin(LogDensity& density, const Tensor& start, const LangevinOptions& options = {},
                         const Tensor& mask = {});

}  // namespace diffeo
