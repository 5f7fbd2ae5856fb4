#include "diffeo/trainers/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

namespace diffeo {
namespace {

void check_range(const char* name, double value, double lower, double upper) {
  if (!(value >= lower && value < upper))
    throw SpecError(name, upper < 2 ? c10::str("must be at least ", lower, " and less than ", upper, ", got ", value)
                                    : c10::str("must be a finite number of at least ", lower, ", got ", value));
}

/// Parameters begin at multiples of 64 bytes, as tensors of their own do: the same kernels give the same bits.
int64_t padded(const Tensor& tensor) {
  const int64_t unit = 64 / tensor.element_size();
  return (tensor.numel() + unit - 1) / unit * unit;
}

}  // namespace

Optimizer::Optimizer(const std::vector<Tensor>& parameters, const Options& options) : options_(options) {
  const double infinity = std::numeric_limits<double>::infinity();
  check_choice("optimizer", options.type, {"adam", "adamw", "sgd"});
  check_range("momentum", options.momentum, 0, 1);
  check_range("average", options.average, 0, 1);
  check_range("weight_decay", options.weight_decay, 0, infinity);
  check_range("clip_norm", options.clip_norm, 0, infinity);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    Group group;
    for (const auto& parameter : parameters) {
      const auto same = [&](const Tensor& other) { return other.is_same(parameter); };
      if (parameter.scalar_type() == dtype && parameter.requires_grad() && parameter.numel() > 0 &&
          std::none_of(group.parameters.begin(), group.parameters.end(), same))
        group.parameters.push_back(parameter);
    }
    if (!group.parameters.empty()) groups_.push_back(std::move(group));
  }
  check(!groups_.empty(), "optimizer: there is no parameter to learn");
  const auto device = groups_[0].parameters[0].device();
  for (const auto& parameter : parameters) {
    check(parameter.scalar_type() == torch::kFloat32 || parameter.scalar_type() == torch::kFloat64,
          "optimizer: parameters must be float32 or float64, got ", parameter.scalar_type());
    check(parameter.device() == device, "optimizer: parameters must be on one device, got ", device, " and ",
          parameter.device());
  }
  for (auto& group : groups_) flatten(group);
}

Optimizer::~Optimizer() {
  for (auto& group : groups_)
    for (auto& parameter : group.parameters) parameter.mutable_grad().reset();
}

void Optimizer::flatten(Group& group) {
  torch::NoGradGuard no_grad;
  int64_t total = 0;
  for (const auto& parameter : group.parameters) total += padded(parameter);
  const auto options = group.parameters[0].options().requires_grad(false);
  const auto zeros = [&] { return at::zeros({total}, options); };
  group.value = zeros();
  group.grad = zeros();
  if (options_.type != "sgd" || options_.momentum > 0) group.first = zeros();
  if (options_.type != "sgd") group.second = zeros();
  group.step = at::zeros({}, options.dtype(torch::kFloat32));
  int64_t at = 0;
  for (auto& parameter : group.parameters) {
    const auto view = [&](const Tensor& flat) { return flat.narrow(0, at, parameter.numel()).view(parameter.sizes()); };
    auto value = view(group.value);
    value.copy_(parameter);
    parameter.set_data(value);
    parameter.mutable_grad().reset();
    group.places.push_back(view(group.grad));
    places_.add(parameter, group.places.back());
    at += padded(parameter);
  }
  if (averages()) group.average = group.value.clone();
}

void Optimizer::check_in_place(const Group& group) const {
  const auto* value = static_cast<const char*>(group.value.const_data_ptr());
  int64_t at = 0;
  for (const auto& parameter : group.parameters) {
    check(parameter.const_data_ptr() == value + at, "optimizer: a parameter of shape ", parameter.sizes(),
          " was replaced by another tensor during training; change its values in place instead");
    at += padded(parameter) * parameter.element_size();
  }
}

void Optimizer::zero_grad() {
  for (auto& group : groups_)
    for (auto& parameter : group.parameters) parameter.mutable_grad().reset();
  places_.offer();
}

void Optimizer::gather(Group& group) {
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    auto& parameter = group.parameters[i];
    auto& place = group.places[i];
    const auto& grad = parameter.grad();
    if (grad.defined() && grad.const_data_ptr() == place.const_data_ptr() && grad.is_contiguous()) continue;
    if (grad.defined())
      place.copy_(grad);
    else
      place.zero_();
    parameter.mutable_grad() = place.detach();
  }
}

Tensor Optimizer::grad_norm() {
  torch::NoGradGuard no_grad;
  std::vector<Tensor> norms;
  for (auto& group : groups_) {
    gather(group);
    norms.push_back(at::linalg_vector_norm(group.grad).to(torch::kFloat64));
  }
  return norms.size() == 1 ? norms[0] : at::linalg_vector_norm(at::stack(norms));
}

void Optimizer::step(double learning_rate, double grad_norm) {
  torch::NoGradGuard no_grad;
  ++steps_;
  places_.withdraw();
  const auto& o = options_;
  for (auto& group : groups_) {
    check_in_place(group);
    gather(group);
    // The small number is PyTorch's, for the same results.
    const double scale = o.clip_norm > 0 ? o.clip_norm / (grad_norm + 1e-6) : 1;
    if (scale < 1) group.grad.mul_(scale);
    group.step.fill_(static_cast<double>(steps_));
    if (o.type == "adam")
      at::_fused_adam_(group.value, group.grad, group.first, group.second, {}, group.step, learning_rate, o.beta1,
                       o.beta2, o.weight_decay, o.epsilon, false, false);
    else if (o.type == "adamw")
      at::_fused_adamw_(group.value, group.grad, group.first, group.second, {}, group.step, learning_rate, o.beta1,
                        o.beta2, o.weight_decay, o.epsilon, false, false);
    else
      at::_fused_sgd_(group.value, group.grad, group.first.defined() ? at::TensorList(group.first) : at::TensorList(),
                      o.weight_decay, o.momentum, learning_rate, 0, false, false, false);
    if (averages()) {
      const auto n = static_cast<double>(steps_);
      group.average.lerp_(group.value, 1 - std::min(o.average, (1 + n) / (10 + n)));
    }
  }
}

void Optimizer::swap_average() {
  torch::NoGradGuard no_grad;
  for (auto& group : groups_) {
    const auto kept = group.value.clone();
    group.value.copy_(group.average);
    group.average.copy_(kept);
  }
}

NamedTensors Optimizer::state_views() const {
  NamedTensors state;
  for (const auto& group : groups_) {
    const auto* dtype = group.value.scalar_type() == torch::kFloat32 ? "float32/" : "float64/";
    if (group.first.defined()) state.emplace_back(c10::str(dtype, "first_moment"), group.first);
    if (group.second.defined()) state.emplace_back(c10::str(dtype, "second_moment"), group.second);
    if (group.average.defined()) state.emplace_back(c10::str(dtype, "average"), group.average);
  }
  return state;
}

NamedTensors Optimizer::state() const {
  auto state = state_views();
  for (auto& [name, tensor] : state) tensor = tensor.clone();
  state.emplace_back("steps", at::scalar_tensor(steps_, torch::kInt64));
  return state;
}

void Optimizer::load(const NamedTensors& state) {
  torch::NoGradGuard no_grad;
  const auto find = [&](const std::string& name, torch::ScalarType dtype, at::IntArrayRef sizes) {
    const auto found = std::find_if(state.begin(), state.end(), [&](const auto& item) { return item.first == name; });
    check(found != state.end(), "optimizer: the state has no '", name, "'");
    check(found->second.scalar_type() == dtype && found->second.sizes() == sizes, "optimizer: '", name,
          "' of the state is ", found->second.scalar_type(), " ", found->second.sizes(), ", expected ", dtype, " ",
          sizes);
    return found->second;
  };
  const auto mine = state_views();
  std::vector<Tensor> theirs;
  for (const auto& [name, tensor] : mine) theirs.push_back(find(name, tensor.scalar_type(), tensor.sizes()));
  steps_ = find("steps", torch::kInt64, {}).item<int64_t>();
  for (size_t i = 0; i < mine.size(); ++i) Tensor(mine[i].second).copy_(theirs[i]);
}

}  // namespace diffeo
