#pragma once

#include <functional>

#include "diffeo/data/model_file.h"
#include "diffeo/trainers/objective.h"

namespace diffeo {

/// How to train. A limit of 0 is no limit; at least one of epochs, steps and seconds must be set.
///
/// The cosine reaches 0 at the last step that epochs and steps allow, or with `seconds` alone at that time. The plateau
/// is reached after `patience` / 2 evaluations without a new best, or 5 where there is no patience.
struct FitOptions {
  int64_t batch_size = 512;
  int64_t epochs = 0;
  int64_t steps = 0;
  double seconds = 0;
  std::string optimizer = "adam";
  double learning_rate = 1e-3;
  std::string schedule = "cosine";
  int64_t warmup_steps = 0;
  double weight_decay = 0;
  double momentum = 0.9;
  double clip_norm = 5;
  double average = 0;
  std::string memory = "normal";
  int64_t evaluate_every = 0;
  int64_t patience = 0;
  double checkpoint_seconds = 60;
  int64_t max_bad_steps = 10;
  std::string graph = "off";
  uint64_t seed = 0;
  static constexpr auto fields() {
    using O = FitOptions;
    return std::tuple{
        optional("batch_size", &O::batch_size, "rows in a step"),
        optional("epochs", &O::epochs, "end after this many passes over the data"),
        optional("steps", &O::steps, "end after this many steps"),
        optional("seconds", &O::seconds, "end after this much wall time"),
        optional("optimizer", &O::optimizer, "adam, adamw or sgd"),
        optional("learning_rate", &O::learning_rate, "at its highest"),
        optional("schedule", &O::schedule, "constant, cosine (to 0 over the run) or plateau (a tenth when stuck)"),
        optional("warmup_steps", &O::warmup_steps, "steps of linear growth from 0 to the learning rate"),
        optional("weight_decay", &O::weight_decay, "decoupled for adamw, added to the gradient for adam and sgd"),
        optional("momentum", &O::momentum, "of sgd"),
        optional("clip_norm", &O::clip_norm, "largest norm of the whole gradient; 0 for no clipping"),
        optional("average", &O::average,
                 "decay of an exponential moving average of the weights, e.g. 0.999; 0 for none"),
        optional(
            "memory", &O::memory,
            "what flows keep for the backward pass: normal (all), checkpoint (inputs of layers; the same result) or "
            "constant (nothing, layers are inverted; the same but for rounding)"),
        optional("evaluate_every", &O::evaluate_every,
                 "steps between evaluations on the validation rows; 0: each epoch"),
        optional("patience", &O::patience, "end after this many evaluations without a new best; 0: never"),
        optional("checkpoint_seconds", &O::checkpoint_seconds, "seconds between checkpoints"),
        optional("max_bad_steps", &O::max_bad_steps, "non-finite steps in a row before the run gives up"),
        optional("graph", &O::graph,
                 "steps as a recorded CUDA graph: auto (on a GPU, where the loss can be recorded), on or off"),
        optional("seed", &O::seed, "of batches, initial values, noise and dropout")};
  }
};

/// Everything that a run needs to go on, besides the values of the objective's own parameters and buffers,
/// which are in `tensors` too (under "current/" and, once there is a best state, "best/"). The scalars survive being
/// written as JSON text.
struct TrainingState {
  Json scalars = Json::object();
  NamedTensors tensors;
};

/// What is told during training.
struct Progress {
  int64_t step = 0, epoch = 0, total_steps = 0;  ///< total_steps 0 where it is not known
  double loss = 0;                               ///< running mean over the last steps, nats
  double learning_rate = 0;
  double valid_loss = 0, best_valid_loss = 0;  ///< of the last evaluation; NaN before the first
  double seconds = 0, seconds_left = 0;        ///< seconds_left NaN where it is not known
  int64_t rows_per_second = 0, skipped_steps = 0;
  bool evaluated = false;  ///< this call is about a new evaluation
};

struct FitHooks {
  std::function<void(const Progress&)> progress;  ///< called after each step
  std::function<void(const TrainingState&, const Json& history)>
      checkpoint;                                  ///< called every checkpoint_seconds and at an interruption
  std::function<void(const std::string&)> notice;  ///< a sentence about the run that the user may want to read
  std::function<bool()> stop;                      ///< asked after each step; true ends the run
};

struct FitReport {
  std::string ended;  ///< "steps", "epochs", "seconds", "patience", "interrupted" or "not finite"
  int64_t steps = 0, epochs = 0, skipped_steps = 0;
  std::string message;           ///< a sentence for the user if the run did not end well, else empty
  double best_valid_loss = 0;    ///< NaN without validation rows
  double train_loss = 0;         ///< running mean over the last steps, nats
  double seconds = 0;            ///< of all sessions
  Json history = Json::array();  ///< objects with step, epoch, loss, valid_loss, learning_rate, seconds
  TrainingState state;           ///< to go on from here
};

/// Minimises `objective` over `train`, keeping the state that is best on `valid` (or, without one, the last state);
/// at the end the objective holds the best state and is in evaluation mode. With an average of the weights it is the
/// average that is validated and kept. Bit for bit repeatable with the same seed and number of threads, and going on
/// from a TrainingState gives the same end as never having stopped (except for a limit of seconds). The caller's random
/// numbers are left alone.
///
/// A resumed run must have the same data, parameters and options; only seconds, checkpoint_seconds, max_bad_steps,
/// memory, graph, patience (but for the plateau) and, unless the schedule is the cosine, epochs and steps may change.
/// On a device of another kind it goes on with other random numbers.
///
/// A step whose loss or gradient is not finite changes nothing and is counted; after max_bad_steps of them in a row (0:
/// never) the run ends, `ended` "not finite", with the best state so far.
///
/// With `graph`, loss, gradient and norm of a step are recorded and repeated (step_graph.h) and only the update is told
/// to the GPU one by one, since the norm decides about it. The numbers are the same. Off unless asked for: no GPU has
/// run it yet.
///
/// Throws Error for options that make no sense, data that do not fit, and a TrainingState of another run.
FitReport fit(Objective& objective, const Dataset& train, const Dataset* valid, const FitOptions& options,
              const FitHooks& hooks = {}, const TrainingState* resume = nullptr);

}  // namespace diffeo
