#include "diffeo/layers/base/gradient_place.h"

#include <ATen/ops/empty.h>

#include <mutex>
#include <unordered_map>

namespace diffeo {
namespace {

struct Place {
  Tensor tensor;
  bool free;
};

/// Backward passes of several devices and of several trainers run in threads of their own.
std::mutex mutex;
std::unordered_map<const c10::TensorImpl*, Place>& places() {
  static auto* all = new std::unordered_map<const c10::TensorImpl*, Place>();  // outlives every optimiser
  return *all;
}

}  // namespace

void GradientPlaces::add(const Tensor& parameter, const Tensor& place) {
  const std::lock_guard lock(mutex);
  parameters_.push_back(parameter.unsafeGetTensorImpl());
  places()[parameters_.back()] = {place, false};
}

void GradientPlaces::offer() { set_free(true); }
void GradientPlaces::withdraw() { set_free(false); }

void GradientPlaces::set_free(bool free) {
  const std::lock_guard lock(mutex);
  for (const auto* parameter : parameters_) places()[parameter].free = free;
}

GradientPlaces::~GradientPlaces() {
  const std::lock_guard lock(mutex);
  for (const auto* parameter : parameters_) places().erase(parameter);
}

Tensor gradient_for(const Tensor& parameter) {
  const std::lock_guard lock(mutex);
  const auto found = places().find(parameter.unsafeGetTensorImpl());
  if (found == places().end() || !found->second.free) return at::empty(parameter.sizes(), parameter.options());
  found->second.free = false;
  // Another tensor on the same memory: autograd adopts what nobody else refers to.
  return found->second.tensor.variable_data();
}

}  // namespace diffeo
