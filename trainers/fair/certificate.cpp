#include "diffeo/trainers/fair/certificate.h"

#include <algorithm>
#include <cmath>

#include "diffeo/layers/base/error.h"
#include "diffeo/trainers/tail_probability.h"

namespace diffeo {
namespace {

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

double binomial_upper_limit(int64_t hits, int64_t trials, double confidence) {
  check_confidence(confidence);
  check(hits >= 0 && hits <= trials && trials > 0, "binomial limits: ", hits, " hits in ", trials, " trials");
  if (hits == trials) return 1;
  return beta_quantile(confidence, static_cast<double>(hits + 1), static_cast<double>(trials - hits));
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
  // All limits hold together: half of what may miss is the groups', half is Hoeffding's (the upper side of its two).
  const double shared = 1 - (1 - confidence) / (2 * static_cast<double>(groups));
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
