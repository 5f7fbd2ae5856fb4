#include "diffeo/layers/autoregressive/autoregressive.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "diffeo/layers/autoregressive/affine_inverse.h"
#include "diffeo/layers/autoregressive/triangular.h"
#include "diffeo/layers/base/error.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/base/score.h"

namespace diffeo {
namespace {

UnivariatePtr map_of(const Autoregressive::Options& options) {
  at_least(1, "features", options.features);
  const auto map = within("map", [&] { return build_univariate(options.map); });
  if (map->parameters() == 0) throw SpecError("map", "has no parameters for the network to make; use elementwise");
  if (!map->separable())
    throw SpecError("map",
                    "couples the features (volume preservation), so that they cannot be inverted one by one; "
                    "use coupling");
  return map;
}

Space space_of(const Autoregressive::Options& options, bool codomain) {
  const auto map = map_of(options);
  return Space::product(std::vector<Axis>(options.features, codomain ? map->codomain() : map->domain()));
}

}  // namespace

Autoregressive::Autoregressive(const Options& options)
    : Layer(space_of(options, false), space_of(options, true), options.context),
      options_(options),
      map_(map_of(options)) {
  const MadeShape shape{.degrees = feature_degrees(options.order, options.features, options.order_seed),
                        .context = options.context,
                        .outputs = map_->parameters(),
                        .periodic = map_->domain().circular};
  affine_ = affine_tile_of(map_->spec());
  net_ = within("net", [&] { return build_made(options.net, shape, identities(*map_, options.features)); });
  register_module("net", net_);
  sequence_.resize(options.features);
  for (int64_t i = 0; i < options.features; ++i) sequence_[shape.degrees[i] - 1] = i;
}

Traits Autoregressive::traits() const {
  auto traits = map_->traits();
  traits.quick_inverse = options_.features == 1 || tensor_options().device().is_cpu();  // without gradients, that is
  return traits;
}

Json Autoregressive::spec() const {
  auto options = options_;
  options.map = map_->spec();
  return write("autoregressive", options);
}

Tensor Autoregressive::parameters_from(const Tensor& x, const Tensor& context) {
  return net_->forward(x, context).unflatten(-1, {options_.features, map_->parameters()});
}

Mapped Autoregressive::map(const Tensor& x, const Tensor& context) {
  return map_->forward(x, parameters_from(x, context));
}

Mapped Autoregressive::unmap(const Tensor& y, const Tensor& context) {
  try {
    if (y.is_cuda() && !affine_) return unmap_passing(y, context);
    const auto plan = gradients_wanted(*net_, y, context) ? std::nullopt : net_->plan();
    if (plan && y.is_cuda()) {
      const auto found = unmap_on_gpu(y, context, *plan);
      if (found) return *found;
    }
    return plan && y.is_cpu() ? unmap_filling(y, context, *plan) : unmap_passing(y, context);
  } catch (const Error&) {
    // The map saw a column of one feature, in a part of the rows. A point outside of its codomain is so for any
    // parameters: seen among the others, it is named by its row and feature.
    torch::NoGradGuard no_grad;
    map_->inverse(y, at::tensor(identities(*map_, options_.features), y.options()).view({options_.features, -1}));
    throw;
  }
}

/// Fills each hidden unit once. Points lie features-major meanwhile, with room for whole tiles.
Mapped Autoregressive::unmap_filling(const Tensor& y, const Tensor& context, const MadePlan& plan) const {
  const auto D = options_.features, rows = y.numel() / D;
  const auto room = (rows + made::tile_rows - 1) / made::tile_rows * made::tile_rows;
  auto points = at::zeros({D, room}, y.options()), log_det = at::zeros({room}, y.options());
  points.narrow(1, 0, rows).copy_(y.reshape({rows, D}).t());
  const auto flat_context = context.defined() ? context.reshape({rows, context.size(-1)}) : context;
  if (affine_)
    solve_affine(plan, flat_context, rows, points, log_det);
  else
    solve_any(plan, flat_context, rows, points, log_det);
  return {points.narrow(1, 0, rows).t().contiguous().view(y.sizes()),
          log_det.narrow(0, 0, rows).view(y.sizes().slice(0, y.dim() - 1))};
}

/// In place: columns of y become those of x.
void Autoregressive::solve_any(const MadePlan& plan, const Tensor& context, int64_t rows, const Tensor& points,
                               const Tensor& log_det) const {
  solve_columns(plan, context, rows, [&](int64_t feature, int64_t begin, const Tensor& parameters) {
    const auto count = parameters.size(0);
    const auto column = points[feature].narrow(0, begin, count).unsqueeze(-1);
    const auto [value, one] = map_->inverse(column, parameters);
    column.copy_(value);
    log_det.narrow(0, begin, count).add_(one);
    return value;
  });
}

void Autoregressive::solve_affine(const MadePlan& plan, const Tensor& context, int64_t rows, const Tensor& points,
                                  const Tensor& log_det) const {
  AT_DISPATCH_FLOATING_TYPES(points.scalar_type(), "autoregressive", [&] {
    const auto kernel = AffineTile::kernel<scalar_t>();
    const auto cap = static_cast<scalar_t>(affine_->cap);
    const auto room = points.size(1);
    auto *all = points.mutable_data_ptr<scalar_t>(), *sums = log_det.mutable_data_ptr<scalar_t>();
    solve_tiles<scalar_t>(plan, context, rows,
                          [=, this](int64_t feature, int64_t begin, const scalar_t* parameters, scalar_t* value) {
                            scalar_t* column = all + feature * room + begin;
                            kernel(affine_->scale, cap, column, parameters, value, sums + begin);
                            std::copy_n(value, made::tile_rows, column);
                          });
  });
}

/// One kernel. None where it cannot.
std::optional<Mapped> Autoregressive::unmap_on_gpu(const Tensor& y, const Tensor& context, const MadePlan& plan) const {
  const auto D = options_.features, rows = y.numel() / D;
  if (rows == 0) return {};
  const auto whole = y.options().dtype(at::kLong);
  const auto units = at::tensor(plan.units, whole), sequence = at::tensor(plan.sequence, whole);
  const auto points = y.contiguous();
  auto x = at::empty_like(points), log_det = at::empty(y.sizes().slice(0, y.dim() - 1), y.options());
  bool done = false;
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "autoregressive", [&] {
    MadePointers<scalar_t> pointers(plan);
    auto program = pointers.program();
    program.units = units.const_data_ptr<int64_t>();
    done = affine_tile::invert_on_gpu({.program = program,
                                       .sequence = sequence.const_data_ptr<int64_t>(),
                                       .scale = affine_->scale,
                                       .cap = static_cast<scalar_t>(affine_->cap),
                                       .rows = rows,
                                       .context = pointers.pointer(context),
                                       .y = points.const_data_ptr<scalar_t>(),
                                       .x = x.mutable_data_ptr<scalar_t>(),
                                       .log_det = log_det.mutable_data_ptr<scalar_t>()},
                                      y.device());
  });
  if (!done) return {};
  return Mapped{x, log_det};
}

/// Passes through the whole network for each feature, recording gradients.
Mapped Autoregressive::unmap_passing(const Tensor& y, const Tensor& context) {
  // Features not yet known are zeros, which no mask lets through to the parameters in use.
  std::vector<Tensor> columns(options_.features, at::zeros_like(y.narrow(-1, 0, 1)));
  Tensor log_det;
  for (const auto feature : sequence_) {
    const auto parameters = parameters_from(at::cat(columns, -1), context).narrow(-2, feature, 1);
    const auto [value, one] = map_->inverse(y.narrow(-1, feature, 1), parameters);
    columns[feature] = value;
    log_det = log_det.defined() ? log_det + one : one;
  }
  return {at::cat(columns, -1), log_det};
}

Scored Autoregressive::carry_score(const Tensor& points, const Tensor& score, const Tensor& context,
                                   Direction direction) {
  const bool forward = direction == Direction::forward;
  auto x = points;
  if (!forward) {
    torch::NoGradGuard no_grad;
    x = fresh_point(unmap(points, context).value);
  }
  const auto own = at::alias(x), parameters = parameters_from(x, context);
  const auto mapped = map_->forward(own, parameters);
  const TriangularJacobian jacobian(x, own, parameters, mapped);
  const auto one_each = at::ones_like(mapped.log_det);
  if (forward) {
    const auto rest = score - pulled_back({mapped.log_det}, {one_each}, x);
    return {mapped.value, mapped.log_det, jacobian.solve_transposed(rest)};
  }
  const auto carried = pulled_back({mapped.value, mapped.log_det}, {score, one_each}, x);
  const auto solve = [jacobian](const Tensor& v) { return jacobian.solve_transposed(v); };
  return {implicit_point(x, mapped.value - points, solve), -mapped.log_det, carried};
}

DIFFEO_LAYER(autoregressive, Autoregressive, "Maps each feature given those before it (Papamakarios et al. 2017).", "y_i = m(x_i; h_i(x_<i, c)), log|det| = sum_i log|m'(x_i)|", "forward one pass of a masked network; inverse one pass too for dense ones (each hidden unit is filled once), else D",
             {"affine", {{"features", 3}, {"net", {{"width", 8}}}}},
             {"one_feature", {{"features", 1}, {"net", {{"width", 8}}}}},
             {"one_feature_context", {{"features", 1}, {"context", 2}, {"net", {{"width", 8}}}}},
             {"context", Json::parse(R"({"features": 4, "context": 3, "order": "random", "order_seed": 3,
                                         "net": {"width": 8, "depth": 1}})")},
             {"residual_spline",
              Json::parse(R"({"features": 3, "order": "reverse", "map": {"type": "rq_spline", "bins": 4},
                                                 "net": {"type": "residual", "width": 8, "dropout": 0.1,
                                                         "batch_norm": true}})")},
             {"residual_context", Json::parse(R"({"features": 3, "context": 2,
                                                  "net": {"type": "residual", "width": 8, "activation": "tanh"}})")},
             {"circular", Json::parse(R"({"features": 3, "map": {"type": "rq_spline", "bins": 4, "tails": "circular"},
                                          "net": {"width": 8, "activation": "tanh"}})")},
             {"narrow", {{"features", 5}, {"net", {{"width", 2}, {"activation", "tanh"}}}}});

}  // namespace diffeo
