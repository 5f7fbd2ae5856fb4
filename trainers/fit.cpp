#include "diffeo/trainers/fit.h"

#include <ATen/ops/stack.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>

#include "diffeo/layers/base/random.h"
#include "diffeo/trainers/evaluate.h"
#include "diffeo/trainers/optimizer.h"
#include "diffeo/trainers/position.h"
#include "diffeo/trainers/schedule.h"
#include "diffeo/trainers/step_graph.h"

namespace diffeo {
namespace {

constexpr double running_decay = 0.98;                    // the running loss remembers about 50 steps
constexpr int64_t smallest_pass = 512;                    // rows at a time where no gradients are kept
constexpr uint64_t evaluation_seed = 0x9e3779b97f4a7c15;  // noise in evaluations is the same each time
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

void check_options(const FitOptions& options, bool has_valid) {
  const auto at_least = [](const char* name, auto value, auto least) {
    if (!(value >= least)) throw SpecError(name, c10::str("must be at least ", least, ", got ", value));
  };
  at_least("batch_size", options.batch_size, 1);
  at_least("epochs", options.epochs, 0);
  at_least("steps", options.steps, 0);
  at_least("seconds", options.seconds, 0.0);
  at_least("evaluate_every", options.evaluate_every, 0);
  at_least("patience", options.patience, 0);
  at_least("checkpoint_seconds", options.checkpoint_seconds, 0.0);
  at_least("max_bad_steps", options.max_bad_steps, 0);
  check(options.epochs > 0 || options.steps > 0 || options.seconds > 0,
        "fit: nothing ends the run; set epochs, steps or seconds");
  if (options.patience > 0 && !has_valid)
    throw SpecError("patience", "needs validation rows; give some or set it to 0");
}

int64_t batches_in(int64_t rows, int64_t batch_size) { return (rows + batch_size - 1) / batch_size; }

/// Steps that epochs and steps allow, 0 if they set no limit.
int64_t total_steps(const FitOptions& options, int64_t rows) {
  const auto by_epochs = options.epochs * batches_in(rows, options.batch_size);
  if (options.epochs == 0 || options.steps == 0) return std::max(options.steps, by_epochs);
  return std::min(options.steps, by_epochs);
}

Optimizer::Options optimizer_options(const FitOptions& options) {
  return {.type = options.optimizer,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay,
          .clip_norm = options.clip_norm,
          .average = options.average};
}

Schedule::Options schedule_options(const FitOptions& options, int64_t rows) {
  return {.schedule = options.schedule,
          .learning_rate = options.learning_rate,
          .warmup_steps = options.warmup_steps,
          .total_steps = total_steps(options, rows),
          .patience = options.patience > 0 ? (options.patience + 1) / 2 : 5};
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }
double number_or_unknown(const Json& json) { return json.is_number() ? json.get<double>() : unknown; }

/// The tensors whose names begin with `prefix`, without it.
NamedTensors under(const NamedTensors& tensors, const std::string& prefix) {
  NamedTensors found;
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()), tensor);
  return found;
}

NamedTensors cloned(const NamedTensors& tensors) {
  torch::NoGradGuard no_grad;
  NamedTensors copies;
  for (const auto& [name, tensor] : tensors) copies.emplace_back(name, tensor.detach().clone());
  return copies;
}

/// The tensors of `saved` under "current/" or another `place`, in the order of a module's state `like`.
/// Throws Error unless they are those of such a module: a file may keep them in any order.
NamedTensors state_in(const TrainingState& saved, const std::string& place, const NamedTensors& like) {
  std::map<std::string, Tensor> values;
  for (const auto& [name, tensor] : under(saved.tensors, place)) values[name] = tensor;
  NamedTensors found;
  for (const auto& [name, tensor] : like) {
    const auto value = values.find(name);
    check(value != values.end(), "fit: the training state has no '", place, name, "'; it is of another model");
    check(value->second.sizes() == tensor.sizes() && value->second.scalar_type() == tensor.scalar_type(), "fit: '",
          place, name, "' of the training state is ", value->second.scalar_type(), " ", value->second.sizes(),
          ", expected ", tensor.scalar_type(), " ", tensor.sizes(), "; it is of another model");
    found.emplace_back(name, value->second);
    values.erase(value);
  }
  check(values.empty(), "fit: the training state has '", place, values.empty() ? "" : values.begin()->first,
        "', which this objective does not have; it is of another model");
  return found;
}

/// Copies values, given in the same order as `state`, into it.
void assign(const NamedTensors& values, const NamedTensors& state) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < state.size(); ++i) Tensor(state[i].second).copy_(values[i].second);
}

/// Tells the flows of an objective what to keep for the backward pass; afterwards they do as before.
class MemoryGuard {
 public:
  MemoryGuard(const Objective& objective, Memory memory) {
    for (const auto& module : objective.modules(/*include_self=*/false))
      if (auto flow = std::dynamic_pointer_cast<Flow>(module)) {
        before_.emplace_back(flow, flow->memory());
        flow->set_memory(memory);
      }
  }
  ~MemoryGuard() {
    for (const auto& [flow, memory] : before_) flow->set_memory(memory);
  }
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;

 private:
  std::vector<std::pair<FlowPtr, Memory>> before_;
};

/// One call of fit.
class Run {
 public:
  Run(Objective& objective, const Dataset& train, const Dataset* valid, const FitOptions& options,
      const FitHooks& hooks, const TrainingState* resume)
      : objective_(objective),
        train_(train),
        valid_(valid),
        options_(options),
        hooks_(hooks),
        device_(device_of(objective)),
        random_(options.seed, device_),
        schedule_(schedule_options(options, train.rows())),
        computed_(recording_for(options.graph, device_), device_,
                  {.compute = [this](const Batch& batch) { return loss_and_norm(batch); },
                   .undo = [this] { assign(buffers_before_, moving_buffers_); },
                   .notice = hooks.notice}) {
    here_.options = write(options);
    here_.rows = train.rows();
    here_.valid_rows = valid ? valid->rows() : 0;
    here_.total_steps = total_steps(options, train.rows());
    objective_.train();
    // Before the parameters move into the optimiser's tensors: a layer may set its own at its first batch.
    if (resume)
      check_resumable(*resume);
    else
      look_at_first_rows();
    optimizer_.emplace(objective_.parameters(), optimizer_options(options));
    if (resume) go_on(*resume);
    moving_buffers_ = find_moving_buffers();
  }

  FitReport run() {
    FitReport report;
    while ((report.ended = reason_to_end()).empty()) {
      take_step(next_batch());
      const bool due = evaluation_due();
      end_epoch();
      if (due) evaluate();
      if (hooks_.progress) hooks_.progress(progress(due));
      if (seconds_since(checkpointed_) >= options_.checkpoint_seconds) checkpoint();
      if (hooks_.stop && hooks_.stop() && reason_to_end().empty()) {
        report.ended = "interrupted";
        checkpoint();
        break;
      }
    }
    finish(report);
    return report;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  static torch::Device device_of(const Objective& objective) {
    const auto parameters = objective.parameters();
    check(!parameters.empty(), "fit: the objective has no parameters to learn");
    return parameters[0].device();
  }

  double seconds() const { return here_.seconds + seconds_since(started_); }
  std::string device_name() const { return c10::DeviceTypeName(device_.type(), true); }
  int64_t pass_size() const { return std::max(options_.batch_size, smallest_pass); }

  /// Data-dependent layers set themselves on as many rows as a step will have, and on hundreds where steps are small.
  void look_at_first_rows() {
    const auto before = cloned(named_state(objective_));
    Batch rows;
    check(train_.shuffled(pass_size(), options_.seed, 0)->next(rows), "fit: the training data gave no batch");
    objective_.loss(to(rows, device_));
    const auto after = named_state(objective_);
    for (const auto& buffer : objective_.named_buffers())
      for (size_t i = 0; i < after.size(); ++i)
        if (after[i].first == buffer.key() && !after[i].second.equal(before[i].second))
          here_.moving_buffers.push_back(buffer.key());
  }

  void check_resumable(const TrainingState& state) {
    const auto before = position_from(state);
    check_same_course(before, here_);
    const auto mine = named_state(objective_);
    state_in(state, "current/", mine);
    if (!before.best_valid_loss.is_null()) state_in(state, "best/", mine);
  }

  void go_on(const TrainingState& state) {
    auto before = position_from(state);
    optimizer_->load(under(state.tensors, "optimizer/"));
    within("training state/schedule", [&] { schedule_.load(before.schedule); });
    before.options = here_.options;
    before.total_steps = here_.total_steps;
    here_ = before;
    first_step_ = here_.step;
    const auto mine = named_state(objective_);
    assign(state_in(state, "current/", mine), mine);
    if (!here_.best_valid_loss.is_null()) best_ = cloned(state_in(state, "best/", mine));
    for (const auto& [name, bytes] : under(state.tensors, "random/")) {
      if (name == "cpu")
        set_random_state(torch::kCPU, bytes);
      else if (name == device_name())
        set_random_state(device_, bytes);
    }
  }

  TrainingState state() const {
    TrainingState state;
    auto position = here_;
    position.seconds = seconds();
    position.schedule = schedule_.state();
    state.scalars = write(position);
    const auto add = [&](const std::string& prefix, const NamedTensors& tensors) {
      for (const auto& [name, tensor] : tensors) state.tensors.emplace_back(prefix + name, tensor);
    };
    add("current/", cloned(named_state(objective_)));
    add("best/", best_);  // never changed, only replaced
    add("optimizer/", optimizer_->state());
    add("random/", NamedTensors{{"cpu", random_state(torch::kCPU)}});
    if (!device_.is_cpu()) add("random/", NamedTensors{{device_name(), random_state(device_)}});
    return state;
  }

  std::string reason_to_end() const {
    if (options_.max_bad_steps > 0 && here_.bad_in_row >= options_.max_bad_steps) return "not finite";
    if (options_.patience > 0 && here_.since_best >= options_.patience) return "patience";
    if (options_.steps > 0 && here_.step >= options_.steps) return "steps";
    if (options_.epochs > 0 && here_.epoch >= options_.epochs) return "epochs";
    if (options_.seconds > 0 && seconds() >= options_.seconds) return "seconds";
    return "";
  }

  Batch next_batch() {
    if (!stream_) {
      stream_ = train_.shuffled(options_.batch_size, options_.seed, here_.epoch);
      if (here_.batch > 0) stream_->skip(here_.batch);
    }
    Batch rows;
    check(stream_->next(rows), "fit: the training data ended after ", here_.batch, " batches, before their ",
          here_.rows, " rows had come");
    return to(rows, device_);
  }

  double learning_rate(int64_t step) const {
    return schedule_.rate(step, options_.seconds > 0 ? seconds() / options_.seconds : 0);
  }
  /// That of the step done last.
  double last_learning_rate() const { return learning_rate(std::max<int64_t>(here_.step - 1, 0)); }

  /// The loss and the norm of its gradient, (2) in float64.
  Tensor loss_and_norm(const Batch& batch) {
    optimizer_->zero_grad();
    const auto loss = objective_.loss(batch);
    check(loss.dim() == 0 && loss.requires_grad(),
          "fit: the objective's loss must be a scalar that depends on its parameters, got shape ", loss.sizes());
    loss.backward();
    return at::stack({loss.detach().to(torch::kFloat64), optimizer_->grad_norm()});
  }

  void take_step(const Batch& batch) {
    buffers_before_ = cloned(moving_buffers_);
    const auto numbers = computed_(batch).cpu();
    const double value = numbers[0].item<double>(), norm = numbers[1].item<double>();
    if (std::isfinite(value) && std::isfinite(norm)) {
      optimizer_->step(learning_rate(here_.step), norm);
      const auto rows = static_cast<double>(batch.x.size(0));
      here_.running_loss = running_decay * here_.running_loss + value;
      here_.running_weight = running_decay * here_.running_weight + 1;
      here_.interval_loss += value * rows;
      here_.interval_rows += rows;
      here_.bad_in_row = 0;
    } else {
      assign(buffers_before_, moving_buffers_);
      ++here_.bad_in_row;
      ++here_.skipped;
    }
    ++here_.step;
    ++here_.batch;
    rows_ += batch.x.size(0);
  }

  /// The buffers that a forward pass changes, themselves.
  NamedTensors find_moving_buffers() const {
    NamedTensors found;
    for (const auto& name : here_.moving_buffers) {
      const auto buffers = objective_.named_buffers();
      const auto* buffer = buffers.find(name);
      check(buffer != nullptr, "fit: the training state has a buffer '", name, "', which the objective has not");
      found.emplace_back(name, *buffer);
    }
    return found;
  }

  bool epoch_done() const { return here_.batch >= batches_in(here_.rows, options_.batch_size); }
  void end_epoch() {
    if (!epoch_done()) return;
    stream_.reset();
    here_.batch = 0;
    ++here_.epoch;
  }

  bool evaluation_due() const {
    return options_.evaluate_every > 0 ? here_.step % options_.evaluate_every == 0 : epoch_done();
  }

  void evaluate() {
    const double train_loss = here_.interval_mean();
    double loss = unknown;
    if (valid_) {
      if (optimizer_->averages()) optimizer_->swap_average();
      const SeedGuard same_noise(options_.seed ^ evaluation_seed, device_);
      loss = mean_loss(objective_, *valid_, pass_size(), device_);
      if (std::isfinite(loss) && (best_.empty() || loss < number_or_unknown(here_.best_valid_loss))) {
        best_ = cloned(named_state(objective_));
        here_.best_valid_loss = loss;
        here_.since_best = 0;
      } else {
        ++here_.since_best;
      }
      if (optimizer_->averages()) optimizer_->swap_average();
    }
    here_.valid_loss = number_or_null(loss);
    here_.history.push_back({{"step", here_.step},
                             {"epoch", here_.epoch},
                             {"loss", number_or_null(train_loss)},
                             {"valid_loss", here_.valid_loss},
                             {"learning_rate", last_learning_rate()},
                             {"seconds", seconds()}});
    schedule_.evaluated(valid_ ? loss : train_loss);
    here_.evaluated_step = here_.step;
    here_.interval_loss = here_.interval_rows = 0;
  }

  Progress progress(bool evaluated) const {
    const double session = seconds_since(started_);
    const auto steps = static_cast<double>(here_.step - first_step_);
    double left = unknown;
    if (here_.total_steps > 0) left = session / steps * static_cast<double>(here_.total_steps - here_.step);
    if (options_.seconds > 0) left = std::fmin(left, std::max(0.0, options_.seconds - seconds()));
    return {.step = here_.step,
            .epoch = here_.epoch,
            .total_steps = here_.total_steps,
            .loss = here_.running_mean(),
            .learning_rate = last_learning_rate(),
            .valid_loss = number_or_unknown(here_.valid_loss),
            .best_valid_loss = number_or_unknown(here_.best_valid_loss),
            .seconds = seconds(),
            .seconds_left = left,
            .rows_per_second = static_cast<int64_t>(static_cast<double>(rows_) / session),
            .skipped_steps = here_.skipped,
            .evaluated = evaluated};
  }

  void checkpoint() {
    if (hooks_.checkpoint) hooks_.checkpoint(state(), here_.history);
    checkpointed_ = Clock::now();
  }

  void finish(FitReport& report) {
    // Before an evaluation that a longer run would not have had here: going on from this state must not know of it.
    report.state = state();
    const bool whole = report.ended != "interrupted" && report.ended != "not finite";
    if (whole && here_.evaluated_step != here_.step) {
      evaluate();
      if (hooks_.progress) hooks_.progress(progress(true));
    }
    if (!best_.empty())
      assign(best_, named_state(objective_));
    else if (optimizer_->averages())
      optimizer_->swap_average();
    objective_.eval();
    report.steps = here_.step;
    report.epochs = here_.epoch;
    report.skipped_steps = here_.skipped;
    report.best_valid_loss = number_or_unknown(here_.best_valid_loss);
    report.train_loss = here_.running_mean();
    report.seconds = seconds();
    report.history = here_.history;
    if (report.ended == "not finite")
      report.message = c10::str("the loss or its gradient was not finite in ", here_.bad_in_row,
                                " steps in a row, the last of them step ", here_.step, ": training stopped and the ",
                                best_.empty() ? "last finite" : "best",
                                " state so far was kept; try a lower learning rate, a smaller clip_norm or float64");
  }

  Objective& objective_;
  const Dataset& train_;
  const Dataset* valid_;
  const FitOptions& options_;
  const FitHooks& hooks_;
  torch::Device device_;
  SeedGuard random_;
  Schedule schedule_;
  std::optional<Optimizer> optimizer_;
  Position here_;
  NamedTensors best_, moving_buffers_, buffers_before_;
  StepGraph computed_;
  std::unique_ptr<BatchStream> stream_;
  Clock::time_point started_ = Clock::now(), checkpointed_ = started_;
  int64_t rows_ = 0, first_step_ = 0;
};

}  // namespace

FitReport fit(Objective& objective, const Dataset& train, const Dataset* valid, const FitOptions& options,
              const FitHooks& hooks, const TrainingState* resume) {
  if (valid && valid->rows() == 0) valid = nullptr;
  check_options(options, valid != nullptr);
  check(train.rows() > 0, "fit: the training data have no rows");
  const at::AutoGradMode gradients(true);
  const MemoryGuard memory(objective, memory_named(options.memory));
  return Run(objective, train, valid, options, hooks, resume).run();
}

}  // namespace diffeo
