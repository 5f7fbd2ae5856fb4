#pragma once

#include "diffeo/trainers/objective.h"

namespace diffeo {

/// `batch` with its tensors on `device`.
Batch to(const Batch& batch, torch::Device device);

/// The mean of the objective's loss over all rows, weighted by row weights where there are any, in evaluation mode and
/// without gradients; the mode is put back. NaN if the weights are all 0.
double mean_loss(Objective& objective, const Dataset& data, int64_t batch_size, torch::Device device);

}  // namespace diffeo
