#include "diffeo/trainers/schedule.h"

#include <cmath>
#include <numbers>

#include "diffeo/layers/base/ranges.h"

namespace diffeo {
namespace {

struct PlateauState {
  int64_t drops = 0, stuck = 0;
  Json best = nullptr;
  static constexpr auto fields() {
    using O = PlateauState;
    return std::tuple{required("drops", &O::drops, "times that the rate was lowered"),
                      required("stuck", &O::stuck, "evaluations since the best or the last drop"),
                      required("best", &O::best, "lowest loss, or null")};
  }
};

}  // namespace

Schedule::Schedule(const Options& options) : options_(options) {
  check_choice("schedule", options.schedule, {"constant", "cosine", "plateau"});
  above_zero("learning_rate", options.learning_rate);
  if (options.warmup_steps < 0)
    throw SpecError("warmup_steps", c10::str("must not be negative, got ", options.warmup_steps));
  if (options.total_steps > 0 && options.warmup_steps >= options.total_steps)
    throw SpecError("warmup_steps", c10::str("must be fewer than the ", options.total_steps, " steps of the run, got ",
                                             options.warmup_steps));
}

double Schedule::rate(int64_t step, double elapsed) const {
  if (step < options_.warmup_steps)
    return options_.learning_rate * static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps);
  if (options_.schedule == "plateau") return options_.learning_rate * std::pow(0.1, drops_);
  if (options_.schedule == "constant") return options_.learning_rate;
  const auto after = static_cast<double>(step - options_.warmup_steps);
  const double done =
      options_.total_steps > 0 ? after / static_cast<double>(options_.total_steps - options_.warmup_steps) : elapsed;
  return options_.learning_rate * (1 + std::cos(std::numbers::pi * std::clamp(done, 0.0, 1.0))) / 2;
}

void Schedule::evaluated(double loss) {
  if (!best_ || loss < *best_) {
    if (std::isfinite(loss)) best_ = loss;
    stuck_ = 0;
  } else if (++stuck_ >= options_.patience) {
    ++drops_;
    stuck_ = 0;
  }
}

Json Schedule::state() const { return write(PlateauState{drops_, stuck_, best_ ? Json(*best_) : Json()}); }

void Schedule::load(const Json& state) {
  const auto plateau = read<PlateauState>(state);
  drops_ = plateau.drops;
  stuck_ = plateau.stuck;
  best_.reset();
  if (!plateau.best.is_null()) best_ = value_of<double>(plateau.best, "best");
}

}  // namespace diffeo
