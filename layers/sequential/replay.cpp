#include "diffeo/layers/sequential/replay.h"

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.detach().clone());
  return all;
}

void assign(const std::vector<Tensor>& values, const std::vector<Tensor>& tensors) {
  torch::NoGradGuard no_grad;
  for (size_t i = 0; i < values.size(); ++i) Tensor(tensors[i]).copy_(values[i]);
}

}  // namespace

Mapped record(Layer& layer, const Tensor& x, const Tensor& context, Before& before) {
  const auto buffers = layer.buffers();
  auto kept = copies(buffers);
  std::vector<uint32_t> versions;
  for (const auto& buffer : buffers) versions.push_back(buffer._version());
  auto random = random_state(x.device());
  auto mapped = layer.forward(x, context);
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i]._version() != versions[i]) before.buffers = kept;
  if (!random.equal(random_state(x.device()))) before.random = random;
  return mapped;
}

Replay::Replay(Layer& layer, const Before& before, bool training, torch::Device device)
    : layer_(layer), device_(device), was_training_(layer.is_training()) {
  if (training != was_training_) layer_.train(training);
  if (!before.buffers.empty()) {
    buffers_ = copies(layer_.buffers());
    assign(before.buffers, layer_.buffers());
  }
  if (before.random.defined()) {
    random_ = random_state(device_);
    set_random_state(device_, before.random);
  }
}

Replay::~Replay() {
  if (layer_.is_training() != was_training_) layer_.train(was_training_);
  assign(buffers_, layer_.buffers());
  if (random_.defined()) set_random_state(device_, random_);
}

}  // namespace diffeo
