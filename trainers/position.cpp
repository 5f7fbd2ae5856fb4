#include "diffeo/trainers/position.h"

namespace diffeo {
namespace {

double ratio(double sum, double weight) { return weight > 0 ? sum / weight : std::numeric_limits<double>::quiet_NaN(); }

/// Options that may change without a change of the steps already done.
bool free_to_change(const std::string& option, const std::string& schedule) {
  if (option == "patience") return schedule != "plateau";
  // A limit of the cosine's steps is judged by their total, below.
  return option == "epochs" || option == "steps" || option == "seconds" || option == "checkpoint_seconds" ||
         option == "max_bad_steps" || option == "memory" || option == "graph";
}

}  // namespace

double Position::running_mean() const { return ratio(running_loss, running_weight); }
double Position::interval_mean() const { return ratio(interval_loss, interval_rows); }

Position position_from(const TrainingState& state) {
  const auto format = state.scalars.is_object() ? state.scalars.value("format", Json()) : Json();
  check(format.is_number_integer(), "fit: there is no state of a training run to resume from");
  check(format == Position::current_format, "fit: the training state has format ", format.dump(),
        ", this program knows format ", Position::current_format);
  return within("training state", [&] {
    auto position = read<Position>(state.scalars);
    check(position.step >= 0 && position.epoch >= 0 && position.batch >= 0, "steps must not be negative");
    check(position.history.is_array() && position.options.is_object(), "history must be a list, options an object");
    for (const auto* loss : {&position.valid_loss, &position.best_valid_loss})
      check(loss->is_null() || loss->is_number(), "expected a loss or null, got ", loss->dump());
    return position;
  });
}

void check_same_course(const Position& before, const Position& now) {
  const auto schedule = now.options.at("schedule").get<std::string>();
  for (const auto& [option, value] : now.options.items()) {
    if (free_to_change(option, schedule)) continue;
    const auto old = before.options.value(option, Json());
    check(old == value, "fit: the run to resume had ", option, " ", old.dump(), ", not ", value.dump(),
          "; resume with the same options or begin a new run");
  }
  check(schedule != "cosine" || before.total_steps == now.total_steps, "fit: the run to resume was planned for ",
        before.total_steps, " steps, not ", now.total_steps,
        ", and a cosine schedule cannot change its length; resume with the same limits or begin a new run");
  check(before.rows == now.rows, "fit: the run to resume had ", before.rows, " training rows, not ", now.rows);
  check(before.valid_rows == now.valid_rows, "fit: the run to resume had ", before.valid_rows, " validation rows, not ",
        now.valid_rows);
}

}  // namespace diffeo
