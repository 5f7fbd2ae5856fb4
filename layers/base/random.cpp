#include "diffeo/layers/base/random.h"

#include <ATen/Context.h>

#include <mutex>

#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

template <class Use>
auto with_generator(torch::Device device, Use&& use) {
  auto generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return use(generator);
}

void seed_generator(torch::Device device, uint64_t seed) {
  with_generator(device, [&](at::Generator& generator) { generator.set_current_seed(seed); });
}

}  // namespace

Tensor random_state(torch::Device device) {
  return with_generator(device, [](at::Generator& generator) { return generator.get_state(); });
}

void set_random_state(torch::Device device, const Tensor& state) {
  check(state.defined() && state.scalar_type() == torch::kUInt8, "random state: expected a tensor of bytes");
  try {
    with_generator(device, [&](at::Generator& generator) { generator.set_state(state.contiguous()); });
  } catch (const c10::Error& error) {
    throw Error(c10::str("random state: does not fit a generator of ", device, ": ", error.what_without_backtrace()));
  }
}

SeedGuard::SeedGuard(uint64_t seed, torch::Device device) : device_(device), cpu_(random_state(torch::kCPU)) {
  if (!device_.is_cpu()) {
    other_ = random_state(device_);
    seed_generator(device_, seed);
  }
  seed_generator(torch::kCPU, seed);
}

SeedGuard::~SeedGuard() {
  set_random_state(torch::kCPU, cpu_);
  if (other_.defined()) set_random_state(device_, other_);
}

}  // namespace diffeo
