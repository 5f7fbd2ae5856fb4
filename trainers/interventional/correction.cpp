#include "diffeo/trainers/interventional/correction.h"

#include <torch/types.h>

#include <cmath>
#include <numbers>

namespace diffeo {

Correction correction_named(const std::string& name) {
  check_choice("correction", name, {"plug_in", "iptw", "aiptw"});
  return name == "plug_in" ? Correction::plug_in : name == "iptw" ? Correction::iptw : Correction::aiptw;
}

std::string name_of(Correction correction) {
  return correction == Correction::plug_in ? "plug_in" : correction == Correction::iptw ? "iptw" : "aiptw";
}

InterventionalLikelihood::InterventionalLikelihood(std::vector<FlowPtr> targets, Correction correction,
                                                   const Tensor& grid)
    : targets_(std::move(targets)), correction_(correction), grid_(grid) {
  check(!targets_.empty(), "interventional likelihood: no target flows");
  for (size_t a = 0; a < targets_.size(); ++a) {
    check(targets_[a]->context_size() == 0, "interventional likelihood: the target flow of treatment ", a,
          " takes a context");
    check((targets_[a]->space().size() == 1) == grid.defined(),
          "interventional likelihood: one outcome needs a grid, several take none");
    register_module("target_" + std::to_string(a), targets_[a]);
  }
}

InterventionalLikelihood::InterventionalLikelihood(std::vector<FlowPtr> targets, Correction correction,
                                                   const Tensor& grid, double floor, const Tensor& centre,
                                                   const Tensor& scale)
    : InterventionalLikelihood(std::move(targets), correction, grid) {
  check(floor >= 0 && floor < 1, "interventional likelihood: the floor must be in [0, 1), got ", floor);
  floor_ = floor;
  centre_ = centre;
  scale_ = scale;
}

Tensor InterventionalLikelihood::log_prob(Flow& target, const Tensor& outcome) const {
  const auto own = target.log_prob(outcome);
  if (floor_ == 0) return own;
  const auto wide = -(std::numbers::pi * scale_ * (1 + ((outcome - centre_) / scale_).square())).log().sum(-1);
  return torch::logaddexp(own + std::log1p(-floor_), wide + std::log(floor_));
}

Tensor InterventionalLikelihood::loss(const Batch& batch) {
  const auto treatments = static_cast<int64_t>(targets_.size());
  const auto outcomes = targets_[0]->space().size();
  Tensor total;
  for (int64_t a = 0; a < treatments; ++a) {
    const auto& target = targets_[a];
    const auto expected = [&] {
      const auto mine = batch.context.unflatten(-1, {treatments, -1}).select(1, a);
      if (grid_.defined()) return -mine.matmul(log_prob(*target, grid_));
      return -log_prob(*target, mine.unflatten(-1, {-1, outcomes})).mean(-1);
    };
    Tensor each;
    if (correction_ == Correction::plug_in) {
      each = expected();
    } else {
      const auto weight = batch.label.select(1, a);
      // Rows without a weight may lie anywhere: what the flow says of them must not count, not even as 0 inf.
      const auto seen = -log_prob(*target, batch.x).masked_fill(weight == 0, 0);
      if (correction_ == Correction::iptw) {
        each = weight * seen;
      } else {
        const auto cross_entropy = expected();
        each = cross_entropy + weight * (seen - cross_entropy);
      }
    }
    const auto mean = weighted_mean(each, batch.weight);
    total = total.defined() ? total + mean : mean;
  }
  return total;
}

Batch rows_of(const Predictions& predictions, const Tensor& outcome, const Tensor& weights) {
  const auto& nodes = predictions.shared_grid() ? predictions.probability : predictions.points;
  return {.x = outcome, .context = nodes.flatten(1), .label = weights};
}

Tensor increasing(const Tensor& values) {
  const auto numbers = values.to(torch::kCPU, torch::kFloat64).contiguous();
  const auto* value = numbers.data_ptr<double>();
  struct Pool {
    double mean;
    int64_t count;
  };
  std::vector<Pool> pools;
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    pools.push_back({value[i], 1});
    while (pools.size() > 1 && pools[pools.size() - 2].mean > pools.back().mean) {
      const auto last = pools.back();
      pools.pop_back();
      auto& pool = pools.back();
      const auto count = pool.count + last.count;
      pool.mean += (last.mean - pool.mean) * static_cast<double>(last.count) / static_cast<double>(count);
      pool.count = count;
    }
  }
  std::vector<double> result;
  for (const auto& pool : pools) result.insert(result.end(), pool.count, pool.mean);
  return torch::tensor(result, torch::kFloat64).to(values.options());
}

Tensor corrected_distribution(const Predictions& predictions, const Tensor& outcome, const Tensor& weights,
                              Correction correction, double smoothing) {
  check(predictions.shared_grid(), "corrected distribution: needs predictions of one outcome");
  check(smoothing >= 0, "corrected distribution: smoothing must not be negative, got ", smoothing);
  const auto grid = predictions.points.squeeze(1).to(torch::kFloat64);
  const auto seen = deposit(outcome.to(torch::kFloat64), torch::ones({1}, grid.options()), grid);  // (N, K)
  std::vector<Tensor> distributions;
  for (int64_t a = 0; a < weights.size(1); ++a) {
    const auto expected = predictions.probability.select(1, a).to(torch::kFloat64);
    const auto weight = weights.select(1, a).to(torch::kFloat64).unsqueeze(1);
    const auto smoothed = [&](const Tensor& probability) {
      const double rows = (weight.sum().square() / weight.square().sum().clamp_min(1e-12)).item<double>();
      const double width =
          smoothing * 0.9 * outcome.std(/*unbiased=*/false).item<double>() * std::pow(std::fmax(rows, 1), -0.2);
      if (!(width > 0)) return probability;
      const auto kernel = (-0.5 * ((grid.unsqueeze(1) - grid) / width).square()).exp();
      return probability.matmul(kernel / kernel.sum(1, /*keepdim=*/true));
    };
    auto one = correction == Correction::plug_in ? expected.mean(0)
               : correction == Correction::iptw  ? smoothed((weight * seen).mean(0) / weight.mean().clamp_min(1e-12))
                                                 : expected.mean(0) + smoothed((weight * (seen - expected)).mean(0));
    if (one.min().item<double>() < 0) {
      const auto function = increasing(one.cumsum(0)).clamp(0, 1);
      one = torch::cat({function.slice(0, 0, 1), function.diff()});
      one = one / one.sum();
    }
    distributions.push_back(one);
  }
  return torch::stack(distributions).to(outcome.options());
}

}  // namespace diffeo
