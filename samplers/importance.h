#pragma once

#include <torch/types.h>

#include <functional>

namespace diffeo {

using torch::Tensor;

// What importance weights say. Log weights are (N), in nats, in any precision; -inf is a weight of 0. The sums are
// taken in float64, after the largest is taken off. Every function throws Error if there are no weights, if one of them
// is NaN or +inf, or if all are 0.

/// An estimate with its standard error.
///
/// Errors come from the delta method: to first order in the scatter of the weights, a ratio or logarithm of means is
/// the mean of independent terms. They hold where the effective sample size is some hundreds of samples or more; the
/// weights of a bad proposal are heavy-tailed, and errors then too small. `bootstrap` assumes less.
struct Estimate {
  double value = 0, error = 0;
};

/// (sum w)^2 / (N sum w^2), above 0 and at most 1: the share of independent samples of the target that the weighted
/// ones are worth.
double effective_sample_size(const Tensor& log_weights);

/// log of the mean weight, nats: log Z of the target where weights are those of a normalised proposal. Its bias is half
/// the square of its error.
Estimate log_mean_weight(const Tensor& log_weights);

/// The mean of values (N) over the target, sum w v / sum w.
Estimate weighted_average(const Tensor& log_weights, const Tensor& values);

/// F_first - F_second = -log(sum of w in the first region / sum of w in the second), nats, where `first` and `second`
/// (N, bool) say which samples are in the regions. Throws Error if one of them has no weight.
Estimate free_energy_difference(const Tensor& log_weights, const Tensor& first, const Tensor& second);

/// The standard deviation of a statistic of N samples over `resamples` sets drawn from them with replacement;
/// `statistic` is called with the indices (N) of each set. Randomness comes from torch's default generator.
Estimate bootstrap(int64_t samples, int64_t resamples, const std::function<double(const Tensor& indices)>& statistic);

}  // namespace diffeo
