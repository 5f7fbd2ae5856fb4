#pragma once

#include "diffeo/data/model_file.h"
#include "diffeo/layers/base/gradient_place.h"

namespace diffeo {

/// Adam, AdamW or SGD with momentum over all parameters at once.
///
/// The parameters of each dtype become views of one flat tensor, and their gradients are gathered in another: a step is
/// a handful of operations however many parameters there are. Fused operations write there themselves
/// (gradient_place.h), other gradients are copied. A parameter that a loss does not reach has the gradient zero.
///
/// Kingma & Ba 2015, https://arxiv.org/abs/1412.6980, algorithm 1; Loshchilov & Hutter 2019,
/// https://arxiv.org/abs/1711.05101, algorithm 2.
class Optimizer {
 public:
  struct Options {
    std::string type = "adam";  ///< adam, adamw or sgd
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double momentum = 0;      ///< of sgd
    double weight_decay = 0;  ///< decoupled for adamw, added to the gradient for adam and sgd
    double clip_norm = 0;     ///< largest norm of the whole gradient, 0 for no clipping
    double average = 0;       ///< decay of the moving average of the parameters, 0 for none
  };

  /// Throws SpecError for options out of range, and Error if there is nothing to optimise, or parameters that are
  /// neither float32 nor float64 or lie on several devices.
  Optimizer(const std::vector<Tensor>& parameters, const Options& options);
  /// Takes the gradients off the parameters.
  ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// No parameter has a gradient after it.
  void zero_grad();
  /// The 2-norm of the whole gradient, a scalar in float64. Gathers the gradients.
  Tensor grad_norm();
  /// Updates parameters and average, given the norm of the gradient, which must be finite.
  /// Throws Error if a parameter has been replaced by another tensor since the construction.
  void step(double learning_rate, double grad_norm);

  bool averages() const { return options_.average > 0; }
  /// Exchanges the values of the parameters with their averages; a second call undoes it.
  /// The average begins at the initial values and forgets them quickly: its decay is min(average, (1 + n) / (10 + n))
  /// in step n.
  void swap_average();

  /// The moments, the average and the number of steps, cloned. The parameters themselves are not in it.
  NamedTensors state() const;
  /// Throws Error, and changes nothing, if `state` is that of another optimiser or of other parameters.
  void load(const NamedTensors& state);

 private:
  /// Parameters of one dtype, one after the other in flat tensors.
  struct Group {
    std::vector<Tensor> parameters;
    std::vector<Tensor> places;  ///< of their gradients: views of `grad`
    Tensor value, grad, first, second, average;
    Tensor step;  ///< a scalar, float32, on the device: what the fused kernels want to know
  };
  void flatten(Group& group);
  void check_in_place(const Group& group) const;
  void gather(Group& group);
  NamedTensors state_views() const;

  Options options_;
  std::vector<Group> groups_;
  GradientPlaces places_;
  int64_t steps_ = 0;
};

}  // namespace diffeo
