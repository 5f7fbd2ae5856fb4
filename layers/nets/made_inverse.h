#pragma once

#include <functional>
#include <vector>

#include "diffeo/layers/base/module.h"
#include "diffeo/layers/nets/made_inverse_cpu.h"

// The way back through a layer whose parameters a masked network makes, at the cost of one pass of the network: hidden
// units are sorted by degree, so that the units of a degree can be computed once for all, as soon as the feature of
// this degree is known. Done with LibTorch's products, one pass for each feature, the same takes D times as long.
//
//   parameters_i = net_i(x_1 ... x_(i-1), c),   x_i = solve(parameters_i),   i = 1 ... D in the network's order
namespace diffeo {

/// A masked network as what is to be done for the units of a degree, one step after another. The hidden units of all
/// layers have the same degrees and are sorted by them. Tensors are those of the network, on its device, of one dtype.
struct MadePlan {
  struct Map {
    Tensor weight;  ///< (units, inputs), or undefined for none. From the inputs: context first, features in their order
    Tensor bias;    ///< (units)
  };
  /// See made::UnitStep.
  struct Step {
    Map map, gate;
    Tensor scale, shift;
    made::Activation activation = made::Activation::none;
    int source = 0, target = 0;
    bool add = false;
  };

  std::vector<int64_t> sequence;  ///< the features in their order
  std::vector<int64_t> units;     ///< hidden units of degree d and below, for d = 0 ... D - 1
  int64_t width = 0, context = 0, outputs = 1;
  bool periodic = false;  ///< a feature's inputs are its cosine and sine
  int buffers = 0;        ///< of hidden units; the inputs are buffer 0
  std::vector<Step> steps;
  Map last;
  int last_source = 0;
};

/// A plan in pointers, to memory of the plan's device but for `units` and `steps`. It must not outlive the plan.
template <class T>
class MadePointers {
 public:
  explicit MadePointers(const MadePlan& plan) {
    for (const auto& step : plan.steps)
      steps_.push_back({pointers(step.map), pointers(step.gate), pointer(step.scale), pointer(step.shift),
                        step.activation, step.source, step.target, step.add});
    program_ = {.context = plan.context,
                .per_feature = plan.periodic ? 2 : 1,
                .features = static_cast<int64_t>(plan.sequence.size()),
                .width = plan.width,
                .outputs = plan.outputs,
                .buffers = plan.buffers,
                .units = plan.units.data(),
                .steps = steps_.data(),
                .step_count = static_cast<int>(steps_.size()),
                .last = pointers(plan.last),
                .last_source = plan.last_source};
  }
  MadePointers(const MadePointers&) = delete;
  MadePointers& operator=(const MadePointers&) = delete;

  const made::UnitProgram<T>& program() const { return program_; }
  /// The memory of a tensor, dense, for as long as this lives; null for an undefined one.
  const T* pointer(const Tensor& tensor) {
    if (!tensor.defined()) return nullptr;
    kept_.push_back(tensor.detach().contiguous());
    return kept_.back().template const_data_ptr<T>();
  }

 private:
  made::UnitMap<T> pointers(const MadePlan::Map& map) {
    if (!map.weight.defined()) return {};
    return {pointer(map.weight), pointer(map.bias), map.weight.size(1)};
  }

  std::vector<Tensor> kept_;
  std::vector<made::UnitStep<T>> steps_;
  made::UnitProgram<T> program_;
};

/// Given the parameters (rows, 1, P) of a feature for some rows from `begin` on, returns the feature, (rows, 1).
using SolveColumn = std::function<Tensor(int64_t feature, int64_t begin, const Tensor& parameters)>;
/// Calls `solve` for each feature of `rows` rows, some hundred of them at a time, in several threads. `context` is
/// (rows, C), or undefined. Records no gradients. A row's numbers depend on nothing but this row.
void solve_columns(const MadePlan& plan, const Tensor& context, int64_t rows, const SolveColumn& solve);

/// The same without tensors, made::tile_rows rows at a time: from parameters (P, tile_rows) to the values of a feature.
/// The last tile has rows beyond the last one, whose numbers mean nothing.
template <class T>
using SolveTile = std::function<void(int64_t feature, int64_t begin, const T* parameters, T* value)>;
template <class T>
void solve_tiles(const MadePlan& plan, const Tensor& context, int64_t rows, const SolveTile<T>& solve);

/// The outputs (rows, D * P) for points (rows, D) that are known already. Records no gradients.
Tensor pass(const MadePlan& plan, const Tensor& x, const Tensor& context);

}  // namespace diffeo
