#pragma once

#include "diffeo/trainers/fit.h"

namespace diffeo {

/// Where a run stands: all scalars that it needs to go on. They are the `scalars` of a TrainingState.
struct Position {
  static constexpr int64_t current_format = 1;

  int64_t format = current_format;
  Json options = Json::object();
  int64_t rows = 0, valid_rows = 0, total_steps = 0;
  int64_t step = 0, epoch = 0, batch = 0;
  int64_t skipped = 0, bad_in_row = 0;
  int64_t evaluated_step = 0, since_best = 0;
  Json valid_loss = nullptr, best_valid_loss = nullptr;
  double running_loss = 0, running_weight = 0;
  double interval_loss = 0, interval_rows = 0;
  double seconds = 0;
  Json schedule = Json::object();
  std::vector<std::string> moving_buffers;
  Json history = Json::array();

  static constexpr auto fields() {
    using O = Position;
    return std::tuple{
        required("format", &O::format, "version of this list"),
        required("options", &O::options, "of the run"),
        required("rows", &O::rows, "of the training data"),
        required("valid_rows", &O::valid_rows, "of the validation data"),
        required("total_steps", &O::total_steps, "that the limits allow, 0 if not known"),
        required("step", &O::step, "steps done"),
        required("epoch", &O::epoch, "epochs done"),
        required("batch", &O::batch, "batches of this epoch done"),
        required("skipped", &O::skipped, "steps that were not finite"),
        required("bad_in_row", &O::bad_in_row, "the last ones of them"),
        required("evaluated_step", &O::evaluated_step, "step of the last evaluation"),
        required("since_best", &O::since_best, "evaluations since the best one"),
        required("valid_loss", &O::valid_loss, "of the last evaluation, or null"),
        required("best_valid_loss", &O::best_valid_loss, "of the best state, or null"),
        required("running_loss", &O::running_loss, "sum of recent losses, older ones counting less"),
        required("running_weight", &O::running_weight, "what they count"),
        required("interval_loss", &O::interval_loss, "sum of losses times rows since the last evaluation"),
        required("interval_rows", &O::interval_rows, "rows since the last evaluation"),
        required("seconds", &O::seconds, "wall time"),
        required("schedule", &O::schedule, "state of the schedule"),
        required("moving_buffers", &O::moving_buffers, "buffers that change in training"),
        required("history", &O::history, "evaluations so far")};
  }

  double running_mean() const;
  double interval_mean() const;
};

/// Reads what a TrainingState says. Throws Error if it is of another version or not one at all.
Position position_from(const TrainingState& state);

/// Throws Error if `before` is of a run that cannot be continued with the options and data of `now`.
void check_same_course(const Position& before, const Position& now);

}  // namespace diffeo
