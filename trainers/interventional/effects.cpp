#include "diffeo/trainers/interventional/effects.h"

#include <ATen/ops/_unique.h>
#include <ATen/ops/special_ndtri.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "diffeo/data/numbers.h"
#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

constexpr int64_t values_of_a_density = 1 << 15;
constexpr int64_t levels_of_steps = 257, values_of_steps = 129;  // where bootstrapped functions are taken
constexpr int64_t steps_at_a_time = 32;
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

Effects::Effects(InterventionalModel& model, const Study& study, int64_t column)
    : Effects(
          model.targets(),
          [&] {
            check_study(study, model.treatments());
            const SeedGuard guard(draws_seed, study.outcome.device());
            return model.predict(study);
          }(),
          study, model.options().quadrature.clip, column) {}

Effects::Effects(std::vector<FlowPtr> targets, Predictions predictions, const Study& study, double clip, int64_t column)
    : predictions_(std::move(predictions)), targets_(std::move(targets)), column_(column) {
  check(column >= 0 && column < study.outcome.size(1), "effects: there is no outcome ", column, "; the study has ",
        study.outcome.size(1));
  check_study(study, static_cast<int64_t>(targets_.size()));
  check(predictions_.propensity.size(0) == study.rows(), "effects: predictions are for ",
        predictions_.propensity.size(0), " rows, but the study has ", study.rows());
  const SeedGuard guard(draws_seed, study.outcome.device());
  weights_ = inverse_weights(predictions_.propensity, study.treatment, clip).to(torch::kFloat64);
  outcome_ = study.outcome.select(1, column).to(torch::kFloat64);
  for (const auto& target : targets_) {
    const auto values = outcome_values(*target, values_of_a_density).select(1, column).to(torch::kCPU, torch::kFloat64);
    drawn_.push_back(std::get<0>(values.sort()));
  }
}

Tensor Effects::places_of_steps(int64_t a) const {
  // Even in probability, and in value, to reach outcomes that the density hardly knows.
  const auto level = torch::linspace(0, static_cast<double>(drawn_[a].numel() - 1), levels_of_steps, torch::kFloat64);
  const auto by_level = drawn_[a].index_select(0, level.round().to(torch::kInt64));
  const auto least = std::fmin(outcome_.min().item<double>(), by_level[0].item<double>()),
             most = std::fmax(outcome_.max().item<double>(), by_level[-1].item<double>());
  const auto by_value = torch::linspace(least - 1e-9 * std::fabs(least), most, values_of_steps, torch::kFloat64);
  return std::get<0>(at::_unique(torch::cat({by_level, by_value})));
}

void Effects::bootstrap(int64_t draws, uint64_t seed) {
  bootstrap_.emplace(draws, seed);
  resampled_.clear();
  for (size_t a = 0; a < targets_.size(); ++a) {
    const auto treatment = static_cast<int64_t>(a);
    const auto places = places_of_steps(treatment);
    std::vector<Tensor> means;
    for (const auto& some : places.split(steps_at_a_time)) {
      std::vector<Tensor> scores;
      for (int64_t i = 0; i < some.numel(); ++i) scores.push_back(cumulative_scores(treatment, some[i].item<double>()));
      means.push_back(bootstrap_->means(torch::stack(scores, 1)).cpu());
    }
    resampled_.emplace_back(places, torch::cat(means, 1));
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

Effect::Interval Effect::interval(double confidence) const {
  check(confidence > 0 && confidence < 1, "confidence: expected a number between 0 and 1, got ", confidence);
  const double tail = (1 - confidence) / 2;
  const auto between = [&](double below, double above) -> Interval {
    if (!probability) return {one_step + below, one_step + above};
    return {std::clamp(one_step + below, 0.0, 1.0), std::clamp(one_step + above, 0.0, 1.0)};
  };
  if (deviations.empty()) {
    const double width = std::sqrt(2.0) * torch::tensor(confidence, torch::kFloat64).erfinv().item<double>();
    return between(-width * standard_error, width * standard_error);
  }
  const auto quantile = [&](double level) {
    const double place = level * static_cast<double>(deviations.size() - 1);
    const auto left = std::min(static_cast<size_t>(place), deviations.size() - 2);
    const double part = place - static_cast<double>(left);
    return (1 - part) * deviations[left] + part * deviations[left + 1];
  };
  return between(quantile(tail), quantile(1 - tail));
}

Effect Effects::bootstrapped(Effect effect, const Tensor& draws) const {
  const auto deviations = (draws.slice(0, 1) - draws[0]).to(torch::kCPU, torch::kFloat64);
  effect.standard_error = deviations.std().item<double>();
  effect.deviations = numbers(std::get<0>(deviations.sort()));
  return effect;
}

Tensor Effects::drawn_gaps(int64_t from, double shift_from, int64_t of, double shift_of) const {
  const auto places = torch::cat({resampled_[from].points() + shift_from, resampled_[of].points() + shift_of});
  const auto gaps = resampled_[from].at(places - shift_from) - resampled_[of].at(places - shift_of);
  return std::get<0>(gaps.max(1)).clamp_min(0);
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
  const auto scores = mean_scores(a);
  auto effect = corrected("mean", density, scores - density);
  return bootstrap_ ? bootstrapped(effect, bootstrap_->means(scores.unsqueeze(1)).squeeze(1)) : effect;
}

Effect Effects::average(int64_t a, int64_t b) const {
  const double density = (drawn_[a].mean() - drawn_[b].mean()).item<double>();
  const auto scores = mean_scores(a) - mean_scores(b);
  auto effect = corrected("average", density, scores - density);
  return bootstrap_ ? bootstrapped(effect, bootstrap_->means(scores.unsqueeze(1)).squeeze(1)) : effect;
}

Effect Effects::quantile(double level, int64_t a, int64_t b) const {
  check(level > 0 && level < 1, "effects: a quantile's level must be between 0 and 1, got ", level);
  const auto of = [&](int64_t treatment) {
    const double q = quantile_of(treatment, level);
    return -(cumulative_scores(treatment, q) - level) / std::fmax(density_at(treatment, q), 1e-12);
  };
  auto effect = corrected(c10::str("quantile ", level), quantile_of(a, level) - quantile_of(b, level), of(a) - of(b));
  if (!bootstrap_) return effect;
  return bootstrapped(effect, resampled_[a].quantile(level) - resampled_[b].quantile(level));
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
  auto effect = corrected("benefit, at least", gap.value, influence, true);
  return bootstrap_ ? bootstrapped(effect, drawn_gaps(b, threshold, a, 0)) : effect;
}

Effect Effects::benefit_upper(double threshold, int64_t a, int64_t b) const {
  const auto gap = largest_gap(a, 0, b, threshold);
  if (std::isnan(gap.place)) return {"benefit, at most", 1, 1, 0, true};
  const auto influence = gap.value - (cumulative_scores(a, gap.place) - cumulative_scores(b, gap.place - threshold));
  auto effect = corrected("benefit, at most", 1 - gap.value, influence, true);
  return bootstrap_ ? bootstrapped(effect, 1 - drawn_gaps(a, 0, b, threshold)) : effect;
}

}  // namespace diffeo
