#include "diffeo/samplers/importance.h"

#include <cmath>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

/// Weights in float64 with the largest 1, and the logarithm of what they were divided by.
struct Weights {
  Tensor values;
  double log_scale;
};

Weights weights_of(const Tensor& log_weights) {
  check(log_weights.defined() && log_weights.dim() == 1 && log_weights.numel() > 0,
        "importance weights: expected log weights (N), N at least 1, got ",
        log_weights.defined() ? c10::str(log_weights.sizes()) : std::string("none"));
  const auto logs = log_weights.detach().to(torch::kFloat64);
  const double largest = logs.max().item<double>();
  const auto broken = logs.isnan().sum().item<int64_t>();
  check(broken == 0, "importance weights: ", broken, " of ", logs.numel(), " are not numbers");
  check(largest < INFINITY, "importance weights: one of them is infinite");
  check(largest > -INFINITY, "importance weights: all of them are 0");
  return {(logs - largest).exp(), largest};
}

double root_of_sum(const Tensor& terms) { return std::sqrt(terms.square().sum().item<double>()); }

}  // namespace

double effective_sample_size(const Tensor& log_weights) {
  const auto w = weights_of(log_weights).values;
  const double sum = w.sum().item<double>();
  return sum * sum / (static_cast<double>(w.numel()) * w.square().sum().item<double>());
}

Estimate log_mean_weight(const Tensor& log_weights) {
  const auto [w, log_scale] = weights_of(log_weights);
  const double mean = w.mean().item<double>(), n = static_cast<double>(w.numel());
  const double error = w.numel() > 1 ? root_of_sum(w - mean) / std::sqrt(n * (n - 1)) / mean : INFINITY;
  return {log_scale + std::log(mean), error};
}

Estimate weighted_average(const Tensor& log_weights, const Tensor& values) {
  const auto w = weights_of(log_weights).values;
  check(values.defined() && values.sizes() == w.sizes(), "weighted average: expected a value for each of the ",
        w.numel(), " weights, got ", values.defined() ? c10::str(values.sizes()) : std::string("none"));
  const auto v = values.detach().to(w.options());
  // Samples of weight 0 may have any value.
  const auto weighted = torch::where(w > 0, w * v, torch::zeros_like(v));
  const double sum = w.sum().item<double>(), mean = weighted.sum().item<double>() / sum;
  return {mean, root_of_sum(weighted - w * mean) / sum};
}

Estimate free_energy_difference(const Tensor& log_weights, const Tensor& first, const Tensor& second) {
  const auto w = weights_of(log_weights).values;
  for (const auto& region : {first, second})
    check(region.defined() && region.sizes() == w.sizes(), "free energy difference: expected for each of the ",
          w.numel(), " weights whether it is in a region, got ",
          region.defined() ? c10::str(region.sizes()) : std::string("none"));
  const auto in_first = first.to(w.options()), in_second = second.to(w.options());
  const double of_first = (w * in_first).sum().item<double>(), of_second = (w * in_second).sum().item<double>();
  check(of_first > 0, "free energy difference: no sample of the first region has any weight");
  check(of_second > 0, "free energy difference: no sample of the second region has any weight");
  return {-std::log(of_first / of_second), root_of_sum(w * (in_first / of_first - in_second / of_second))};
}

Estimate bootstrap(int64_t samples, int64_t resamples, const std::function<double(const Tensor& indices)>& statistic) {
  check(samples > 0 && resamples > 1, "bootstrap: expected at least 1 sample and 2 resamples, got ", samples, " and ",
        resamples);
  double sum = 0, squares = 0;
  const double value = statistic(torch::arange(samples));
  for (int64_t i = 0; i < resamples; ++i) {
    const double off = statistic(torch::randint(samples, {samples}, torch::kLong)) - value;
    sum += off;
    squares += off * off;
  }
  const double n = static_cast<double>(resamples), mean = sum / n;
  return {value, std::sqrt(std::max(0.0, (squares / n - mean * mean) * n / (n - 1)))};
}

}  // namespace diffeo
