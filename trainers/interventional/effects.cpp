#include "diffeo/trainers/interventional/effects.h"

#include <ATen/ops/special_ndtri.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

constexpr int64_t values_of_a_density = 1 << 15;
constexpr uint64_t draws_seed = 0x5eed;  // effects of one model are the same each time

}  // namespace

Tensor outcome_values(Flow& target, int64_t count) {
  torch::NoGradGuard no_grad;
  if (target.space().size() > 1) return target.draw({count}).value;
  const auto level = (torch::arange(count, torch::kFloat64) + 0.5) / static_cast<double>(count);
  const auto z = at::special_ndtri(level);
  // Every map of the flow increases, so that order and levels stay.
  return target.to_data(z.unsqueeze(1).to(target.tensor_options())).value;
}

Effects::Effects(InterventionalModel& model, const Study& study, int64_t column) : column_(column) {
  check(column >= 0 && column < model.outcomes(), "effects: there is no outcome ", column, "; the model has ",
        model.outcomes());
  check_study(study, model.treatments());
  targets_ = model.targets();
  const SeedGuard guard(draws_seed, study.outcome.device());
  predictions_ = model.predict(study);
  weights_ =
      inverse_weights(predictions_.propensity, study.treatment, model.options().quadrature.clip).to(torch::kFloat64);
  outcome_ = study.outcome.select(1, column).to(torch::kFloat64);
  for (const auto& target : targets_) {
    const auto values = outcome_values(*target, values_of_a_density).select(1, column).to(torch::kCPU, torch::kFloat64);
    drawn_.push_back(std::get<0>(values.sort()));
  }
}

double Effects::cumulative(int64_t a, double y) const {
  const auto& values = drawn_[a];
  const auto* begin = values.data_ptr<double>();
  const auto* end = begin + values.numel();
  return static_cast<double>(std::upper_bound(begin, end, y) - begin) / static_cast<double>(values.numel());
}

double Effects::quantile_of(int64_t a, double level) const {
  const auto& values = drawn_[a];
  const auto place = level * static_cast<double>(values.numel()) - 0.5;
  const auto left = std::clamp<int64_t>(static_cast<int64_t>(std::floor(place)), 0, values.numel() - 2);
  const double part = std::clamp(place - static_cast<double>(left), 0.0, 1.0);
  return (1 - part) * values[left].item<double>() + part * values[left + 1].item<double>();
}

double Effects::density_at(int64_t a, double y) const {
  torch::NoGradGuard no_grad;
  if (targets_[a]->space().size() == 1)
    return targets_[a]->log_prob(torch::full({1, 1}, y, targets_[a]->tensor_options())).exp().item<double>();
  const double step = 0.05 * (quantile_of(a, 0.75) - quantile_of(a, 0.25)) + 1e-12;
  return (cumulative(a, y + step) - cumulative(a, y - step)) / (2 * step);
}

Tensor Effects::mean_scores(int64_t a) const {
  const auto expected = predictions_.mean(column_).select(1, a).to(torch::kFloat64);
  return expected + weights_.select(1, a) * (outcome_ - expected);
}

Tensor Effects::cumulative_scores(int64_t a, double y) const {
  const auto expected = predictions_.cumulative(y, column_).select(1, a).to(torch::kFloat64);
  return expected + weights_.select(1, a) * (outcome_.le(y).to(torch::kFloat64) - expected);
}

double Effect::lower(double width) const {
  const double end = one_step - width * standard_error;
  return probability ? std::clamp(end, 0.0, 1.0) : end;
}

double Effect::upper(double width) const {
  const double end = one_step + width * standard_error;
  return probability ? std::clamp(end, 0.0, 1.0) : end;
}

Effect Effects::corrected(std::string name, double density, const Tensor& influence, bool probability) const {
  const auto rows = static_cast<double>(influence.numel());
  const double error = rows > 1 ? influence.std().item<double>() / std::sqrt(rows) : std::nan("");
  double one_step = density + influence.mean().item<double>();
  if (probability) one_step = std::clamp(one_step, 0.0, 1.0);
  return {std::move(name), density, one_step, error, probability};
}

Effect Effects::mean(int64_t a) const {
  const double density = drawn_[a].mean().item<double>();
  return corrected("mean", density, mean_scores(a) - density);
}

Effect Effects::average(int64_t a, int64_t b) const {
  const double density = (drawn_[a].mean() - drawn_[b].mean()).item<double>();
  return corrected("average", density, mean_scores(a) - mean_scores(b) - density);
}

Effect Effects::quantile(double level, int64_t a, int64_t b) const {
  check(level > 0 && level < 1, "effects: a quantile's level must be between 0 and 1, got ", level);
  const auto of = [&](int64_t treatment) {
    const double q = quantile_of(treatment, level);
    return -(cumulative_scores(treatment, q) - level) / std::fmax(density_at(treatment, q), 1e-12);
  };
  return corrected(c10::str("quantile ", level), quantile_of(a, level) - quantile_of(b, level), of(a) - of(b));
}

Effects::Gap Effects::largest_gap(int64_t from, double shift_from, int64_t of, double shift_of) const {
  Gap best{0, std::nan("")};
  const auto look_at = [&](const Tensor& values, double shift) {
    for (int64_t i = 0; i < values.numel(); i += 8) {
      const double y = values.data_ptr<double>()[i] + shift;
      const double gap = cumulative(from, y - shift_from) - cumulative(of, y - shift_of);
      if (gap > best.value) best = {gap, y};
    }
  };
  look_at(drawn_[from], shift_from);
  look_at(drawn_[of], shift_of);
  return best;
}

Effect Effects::benefit_lower(double threshold, int64_t a, int64_t b) const {
  const auto gap = largest_gap(b, threshold, a, 0);
  if (std::isnan(gap.place)) return {"benefit, at least", 0, 0, 0, true};
  // The place of the supremum may be held fixed: to first order it does not matter.
  const auto influence = cumulative_scores(b, gap.place - threshold) - cumulative_scores(a, gap.place) - gap.value;
  return corrected("benefit, at least", gap.value, influence, true);
}

Effect Effects::benefit_upper(double threshold, int64_t a, int64_t b) const {
  const auto gap = largest_gap(a, 0, b, threshold);
  if (std::isnan(gap.place)) return {"benefit, at most", 1, 1, 0, true};
  const auto influence = gap.value - (cumulative_scores(a, gap.place) - cumulative_scores(b, gap.place - threshold));
  return corrected("benefit, at most", 1 - gap.value, influence, true);
}

}  // namespace diffeo
