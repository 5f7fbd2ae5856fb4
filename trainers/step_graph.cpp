#include "diffeo/trainers/step_graph.h"

#include <ATen/ops/empty_like.h>

#include <array>

#include "diffeo/layers/base/options.h"
#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

/// Libraries set themselves up in the first step, and allocate what they keep.
constexpr int rehearsals = 3;

constexpr std::array parts_of_batch{&Batch::x, &Batch::context, &Batch::weight, &Batch::label};

bool same_kind(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

bool same_kind(const Batch& a, const Batch& b) {
  for (const auto part : parts_of_batch)
    if (!same_kind(a.*part, b.*part)) return false;
  return true;
}

/// The states of the generators that a computation may draw from.
class RandomStates {
 public:
  explicit RandomStates(torch::Device device) : device_(device), cpu_(random_state(torch::kCPU)) {
    if (!device.is_cpu()) own_ = random_state(device);
  }
  bool still_hold() const {
    return random_state(torch::kCPU).equal(cpu_) && (!own_.defined() || random_state(device_).equal(own_));
  }
  void restore() const {
    if (still_hold()) return;
    set_random_state(torch::kCPU, cpu_);
    if (own_.defined()) set_random_state(device_, own_);
  }

 private:
  torch::Device device_;
  Tensor cpu_, own_;
};

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

std::unique_ptr<Recording> recording_for(const std::string& mode, torch::Device device) {
  check_choice("graph", mode, {"auto", "on", "off"});
  if (mode == "off" || (mode == "auto" && !device.is_cuda())) return nullptr;
  return cuda_recording(device);
}

StepGraph::StepGraph(std::unique_ptr<Recording> recording, torch::Device device, Parts parts)
    : recording_(std::move(recording)), device_(device), parts_(std::move(parts)) {}

Tensor StepGraph::operator()(const Batch& batch) {
  if (!recording_) return parts_.compute(batch);
  if (!same_kind(batch, inputs_)) {
    if (recorded_) return parts_.compute(batch);
    for (const auto part : parts_of_batch)
      inputs_.*part = (batch.*part).defined() ? at::empty_like(batch.*part) : Tensor();
    rehearsed_ = 0;
  }
  for (const auto part : parts_of_batch)
    if ((batch.*part).defined()) (inputs_.*part).copy_(batch.*part);
  if (recorded_) return recording_->replay();
  const RandomStates before(device_);
  try {
    const auto result = advance();
    if (!before.still_hold()) give_up("the loss draws random numbers");
    return result;
  } catch (const std::exception& error) {
    give_up(first_line(error.what()));
  }
  before.restore();
  if (parts_.undo) parts_.undo();
  return parts_.compute(batch);
}

/// A rehearsal, or the recording and its first replay.
Tensor StepGraph::advance() {
  const auto work = [this] { return parts_.compute(inputs_); };
  if (rehearsed_ < rehearsals) {
    ++rehearsed_;
    return recording_->rehearse(work);
  }
  recording_->record(work);
  recorded_ = true;
  return recording_->replay();
}

void StepGraph::give_up(const std::string& why) {
  recording_.reset();
  recorded_ = false;
  if (parts_.notice) parts_.notice("steps run without a CUDA graph: " + why);
}

}  // namespace diffeo
