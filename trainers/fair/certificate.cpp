#include "diffeo/trainers/fair/certificate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

/// The continued fraction of the incomplete beta function, by Lentz's method; converges fast for x < (a + 1)/(a + b +
/// 2).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300, precision = 1e-15;
  const auto kept_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double numerator = 1, denominator = 1 / kept_from_zero(1 - (a + b) * x / (a + 1));
  double value = denominator;
  // The number of terms needed grows as the root of a and b.
  const auto most = static_cast<int64_t>(1000 + 10 * std::sqrt(std::max(a, b)));
  for (int64_t m = 1; m <= most; ++m) {
    const double k = static_cast<double>(m);
    const double even = k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k));
    denominator = 1 / kept_from_zero(1 + even * denominator);
    numerator = kept_from_zero(1 + even / numerator);
    value *= denominator * numerator;
    const double odd = -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1));
    denominator = 1 / kept_from_zero(1 + odd * denominator);
    numerator = kept_from_zero(1 + odd / numerator);
    const double factor = denominator * numerator;
    value *= factor;
    if (std::abs(factor - 1) < precision) break;
  }
  return value;
}

/// The x in [0, 1] where a growing function passes `level`.
template <class Function>
double crossing(const Function& function, double level) {
  double lower = 0, upper = 1;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (lower + upper);
    (function(middle) < level ? lower : upper) = middle;
  }
  return 0.5 * (lower + upper);
}

void check_confidence(double confidence) {
  check(confidence > 0 && confidence < 1, "confidence must lie between 0 and 1, got ", confidence);
}

void check_log_densities(const std::vector<Tensor>& log_densities) {
  const auto groups = static_cast<int64_t>(log_densities.size());
  check(groups >= 2, "certificate: needs at least two groups, got ", groups);
  for (int64_t a = 0; a < groups; ++a) {
    const auto& own = log_densities[a];
    check(own.dim() == 2 && own.size(1) == groups && own.size(0) == log_densities[0].size(0) && own.size(0) > 0,
          "certificate: expected log densities (n, ", groups, ") of draws of group ", a, ", got ", own.sizes());
    check(!own.isnan().any().item<bool>(), "certificate: a log density of draws of group ", a, " is NaN");
  }
}

}  // namespace

double Certificate::delta() const {
  const auto groups = static_cast<double>(hit_rates.size());
  return std::clamp((groups * accuracy - 1) / (groups - 1), 0.0, 1.0);
}

double Certificate::upper() const { return std::min(hoeffding, clopper_pearson); }

double incomplete_beta(double a, double b, double x) {
  check(a > 0 && b > 0 && x >= 0 && x <= 1, "incomplete_beta: needs a, b > 0 and x in [0, 1], got ", a, ", ", b, ", ",
        x);
  if (x == 0 || x == 1) return x;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double binomial_upper_limit(int64_t hits, int64_t trials, double confidence) {
  check_confidence(confidence);
  check(hits >= 0 && hits <= trials && trials > 0, "binomial limits: ", hits, " hits in ", trials, " trials");
  if (hits == trials) return 1;
  const auto a = static_cast<double>(hits + 1), b = static_cast<double>(trials - hits);
  return crossing([&](double p) { return incomplete_beta(a, b, p); }, confidence);
}

double binomial_lower_limit(int64_t hits, int64_t trials, double confidence) {
  return 1 - binomial_upper_limit(trials - hits, trials, confidence);
}

Certificate certify(const std::vector<Tensor>& log_densities, double confidence) {
  check_confidence(confidence);
  check_log_densities(log_densities);
  const auto groups = static_cast<int64_t>(log_densities.size());
  Certificate certificate;
  certificate.samples = log_densities[0].size(0);
  certificate.confidence = confidence;
  const double shared = 1 - (1 - confidence) / static_cast<double>(groups);  // all limits hold together
  for (int64_t a = 0; a < groups; ++a) {
    const auto hits = (log_densities[a].argmax(-1) == a).sum().item<int64_t>();
    const double rate = static_cast<double>(hits) / static_cast<double>(certificate.samples);
    certificate.hit_rates.push_back(rate);
    certificate.accuracy += rate / static_cast<double>(groups);
    certificate.clopper_pearson +=
        binomial_upper_limit(hits, certificate.samples, shared) / static_cast<double>(groups);
  }
  // The mean of K n independent hits; the limit is two-sided, as for a difference whose sign is not known before.
  const double terms = static_cast<double>(groups) * static_cast<double>(certificate.samples);
  certificate.hoeffding = std::min(1.0, certificate.accuracy + std::sqrt(std::log(2 / (1 - confidence)) / (2 * terms)));
  return certificate;
}

Certificate certify_cells(const Tensor& p) {
  check(p.dim() == 2 && p.size(0) >= 2, "certificate: expected probabilities (K, M) of at least 2 groups, got ",
        p.sizes());
  const auto cells = p.to(torch::kCPU, torch::kFloat64);
  check((cells >= 0).all().item<bool>() && (cells.sum(-1) - 1).abs().max().item<double>() < 1e-9,
        "certificate: probabilities of cells must not be negative and must sum to 1");
  const auto guessed = cells.argmax(0);  // (M)
  Certificate certificate;
  certificate.confidence = 1;
  for (int64_t a = 0; a < cells.size(0); ++a) {
    certificate.hit_rates.push_back(cells[a].masked_fill(guessed != a, 0).sum().item<double>());
    certificate.accuracy += certificate.hit_rates.back() / static_cast<double>(cells.size(0));
  }
  certificate.hoeffding = certificate.clopper_pearson = certificate.accuracy;
  return certificate;
}

double weighted_delta(const std::vector<Tensor>& log_densities) {
  check_log_densities(log_densities);
  check(log_densities.size() == 2, "weighted_delta: for two groups, got ", log_densities.size());
  double delta = 0;
  for (int64_t a = 0; a < 2; ++a) {
    const auto ratio = log_densities[a].select(1, 1 - a) - log_densities[a].select(1, a);
    delta += 0.5 * (-ratio.to(torch::kFloat64).clamp_max(0).expm1()).mean().item<double>();
  }
  return delta;
}

}  // namespace diffeo
