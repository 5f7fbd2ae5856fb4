#include "diffeo/layers/base/constant_log_det_guard.h"

#include <ATen/TensorOperators.h>

#include <utility>

namespace diffeo {
namespace {

thread_local ConstantLogDetGuard* innermost = nullptr;

}  // namespace

ConstantLogDetGuard::ConstantLogDetGuard(Mode mode) : mode_(mode), outer_(std::exchange(innermost, this)) {}

ConstantLogDetGuard::~ConstantLogDetGuard() { innermost = outer_; }

void ConstantLogDetGuard::add(const Tensor& log_det) {
  collected_ = collected_.defined() ? collected_ + log_det : log_det;
}

ConstantLogDetGuard* ConstantLogDetGuard::current() { return innermost; }

ConstantLogDetGuard::Suspended::Suspended() : outer_(std::exchange(innermost, nullptr)) {}

ConstantLogDetGuard::Suspended::~Suspended() { innermost = outer_; }

}  // namespace diffeo
