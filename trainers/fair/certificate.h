#pragma once

#include <torch/types.h>

#include <vector>

namespace diffeo {

using torch::Tensor;

/// A bound on what any adversary can know of the group from a representation, from samples of its exact densities.
///
/// The best adversary guesses the group of the greatest density. For two groups its balanced accuracy is
/// (1 + Delta) / 2, Delta being the total variation distance of the two densities; for K groups it is
/// 1/K of the integral of the greatest density, and Delta stands for (K accuracy - 1) / (K - 1).
/// Balunovic, Ruoss and Vechev, "Fair normalizing flows", 2022, https://arxiv.org/abs/2106.05937, section 4.
struct Certificate {
  int64_t samples = 0;            ///< of each group
  double confidence = 0;          ///< of the upper ends
  std::vector<double> hit_rates;  ///< of the best adversary in each group
  double accuracy = 0;            ///< the mean of them: estimate of the bound on any adversary's balanced accuracy
  double hoeffding = 0;           ///< upper end by Hoeffding's inequality
  double clopper_pearson = 0;     ///< upper end by exact binomial limits of the hit rates
  double delta() const;           ///< of `accuracy`, in [0, 1]
  double upper() const;           ///< the lower of the two upper ends
};

/// `log_densities[a]` (n, K) holds log p_b(z) in nats of points z drawn from group a, for all K groups b. `confidence`
/// lies in (0, 1). Both upper ends hold together with at least that probability if the densities are those of the
/// draws. Throws Error for fewer than two groups, for other shapes and for NaN.
Certificate certify(const std::vector<Tensor>& log_densities, double confidence);

/// The same for groups whose cells have known probabilities `p` (K, M), each row of sum 1: the bound is exact.
Certificate certify_cells(const Tensor& p);

/// Delta for two groups from importance weights, with less variance than the adversary's hits:
/// the mean over z of group a of max(0, 1 - p_other(z) / p_a(z)), averaged over both. log_densities as above.
double weighted_delta(const std::vector<Tensor>& log_densities);

/// The upper end of a one-sided exact confidence interval for the chance of a hit, after `hits` in `trials`: the
/// probability of no more hits than that is 1 - confidence there. Clopper and Pearson 1934.
double binomial_upper_limit(int64_t hits, int64_t trials, double confidence);
/// The lower end of the same.
double binomial_lower_limit(int64_t hits, int64_t trials, double confidence);

}  // namespace diffeo
