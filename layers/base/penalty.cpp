#include "diffeo/layers/base/penalty.h"

#include <utility>

namespace diffeo {
namespace {

thread_local Penalties* innermost = nullptr;

}  // namespace

Penalties::Penalties() : outer_(std::exchange(innermost, this)) {}
Penalties::~Penalties() { innermost = outer_; }

bool Penalties::wanted() { return innermost != nullptr; }

void Penalties::add(const Tensor& penalty) {
  if (innermost) innermost->sum_ = innermost->sum_.defined() ? innermost->sum_ + penalty : penalty;
}

}  // namespace diffeo
