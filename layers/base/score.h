#pragma once

#include <functional>

#include "diffeo/layers/base/univariate.h"

// How a layer carries the score of a density, the gradient of its logarithm, along with the points. Where the layer is
// y = T(x) with Jacobian J, the score g of a density at x becomes that of the density of y,
//
//   J^-T (g - grad_x log|det J|),
//
// since log q(y) = log p(x) - log|det J(x)|. Scores are numbers: none of them has a graph.
namespace diffeo {

/// The vector-Jacobian product sum_i v_i^T d output_i / d input, without a graph of its own; that of the outputs is
/// left as it is. Zeros where no output depends on the input.
Tensor pulled_back(const std::vector<Tensor>& outputs, const std::vector<Tensor>& by_outputs, const Tensor& input);

/// A point without a history that asks for gradients.
Tensor fresh_point(const Tensor& x);

/// x, or the same numbers as a new variable if x has no graph to hang derivatives on.
Tensor as_variable(const Tensor& x);

/// The score of y = T(x), from the way back x = S(y) alone: the gradient of log p(S(y)) + log|det dS/dy|, where `score`
/// is that of p at x. S is evaluated once more, and T not at all.
Tensor score_by_way_back(const std::function<Mapped(const Tensor& y)>& way_back, const Tensor& y, const Tensor& score);

/// The score of y = T(x) from the whole Jacobian, by as many vector-Jacobian products as an event has features, and one
/// solution for each point. `x` is in the graph of `mapped` = T(x).
Tensor score_by_jacobian(const Tensor& x, const Mapped& mapped, const Tensor& score);

/// Points that a univariate map has moved, with all that their scores need.
struct ScoredFeatures {
  Mapped mapped;         ///< as the map gave it, with its graph
  Tensor score;          ///< (*batch, D): (g - d log_det / d x) / slope
  Tensor by_parameters;  ///< (*batch, D, P): d (log_det + value . score) / d parameters, undefined unless wanted
};

/// A univariate map applied in one direction. With parameters wanted and a way back that is a formula, that gives all;
/// else slope and derivatives of log_det are taken where the map stands, and no inverse is evaluated. The derivatives
/// by the parameters, where `want_parameters`, are what a scheme passes on to what made them: the score there falls by
/// the vector-Jacobian product of `by_parameters`. `x` and, then, `parameters` must ask for gradients, and `parameters`
/// be those of each point, not shared by the batch.
ScoredFeatures carry_features(const Univariate& map, const Tensor& x, const Tensor& parameters, const Tensor& score,
                              Direction direction, bool want_parameters);

/// x, which solves residual(x; theta) = 0, as a function of theta: x itself, whose derivatives by theta are those of
/// the implicit function, -J^-1 d residual / d theta with J = d residual / d x. `residual` has the graph of theta at x
/// held fixed; `solve` gives J^-T v for v (*batch, *event). Differentiable once.
Tensor implicit_point(const Tensor& x, const Tensor& residual, std::function<Tensor(const Tensor& v)> solve);

}  // namespace diffeo
