#include "diffeo/layers/nets/made_inverse.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "diffeo/layers/base/cpu_kernels.h"
#include "diffeo/layers/base/parallel.h"

namespace diffeo {
namespace made {

DIFFEO_CPU_KERNELS(UnitKernels)

}  // namespace made

namespace {

using namespace made;

/// A plan on the CPU. It must not outlive the plan.
template <class T>
class Units {
 public:
  Units(const MadePlan& plan, const Tensor& context)
      : plan_(plan), kernels_(cpu_kernels<T>()), pointers_(plan), program_(pointers_.program()) {
    context_ = pointers_.pointer(context);
  }

  int64_t features() const { return program_.features; }
  int64_t outputs() const { return program_.outputs; }
  /// T in the memory of a tile.
  int64_t size() const {
    return tile_rows *
           (program_.context + program_.features * program_.per_feature + (program_.buffers + 2) * program_.width);
  }

  /// Begins with what is known before any feature is.
  void begin(T* tile, int64_t row, int64_t rows) const {
    const int64_t size = program_.context;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < size; ++c) tile[c * tile_rows + i] = context_[(row + i) * size + c];
    kernels_.fill(program_, 0, tile);
  }

  /// (P, tile_rows) outputs for the feature at `place` of the order, from 0.
  void outputs_at(int64_t place, const T* tile, T* to) const {
    kernels_.outputs(program_, plan_.sequence[place], place + 1, tile, to);
  }

  void transpose(const T* from, int64_t columns, int64_t rows, T* to) const {
    kernels_.transpose(from, columns, rows, to);
  }

  /// All features at once: points (rows, D) from `row` on to outputs (rows, D * P), with room for (D * P, tile_rows).
  void pass(const T* points, int64_t row, int64_t rows, T* tile, T* room, T* to) const {
    const auto D = features(), P = outputs();
    begin(tile, row, rows);
    for (int64_t place = 0; place < D; ++place) {
      T* at = input(place, tile);
      for (int64_t i = 0; i < rows; ++i) at[i] = points[(row + i) * D + plan_.sequence[place]];
      if (plan_.periodic) turn(at, rows);
    }
    for (int64_t place = 0; place < D; ++place) {
      outputs_at(place, tile, room + plan_.sequence[place] * P * tile_rows);
      fill_after(place, tile);
    }
    transpose(room, D * P, rows, to + row * D * P);
  }

  /// Angles to their cosines and, in the row after, sines.
  static void turn(T* at, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i) {
      const T angle = at[i];
      at[i] = std::cos(angle);
      at[i + tile_rows] = std::sin(angle);
    }
  }

  /// Where the inputs made of the feature at `place` go.
  T* input(int64_t place, T* tile) const {
    return tile + tile_rows * (program_.context + place * program_.per_feature);
  }

  /// Computes the hidden units that wait for the feature at `place` and no other.
  void fill_after(int64_t place, T* tile) const {
    if (place + 1 < features()) kernels_.fill(program_, place + 1, tile);
  }

 private:
  const MadePlan& plan_;
  const UnitKernels<T>& kernels_;
  MadePointers<T> pointers_;
  const UnitProgram<T>& program_;
  const T* context_;
};

int64_t divided_up(int64_t number, int64_t by) { return (number + by - 1) / by; }

template <class T>
Tensor memory(int64_t size) {
  // Zeros: rows that a tile has to spare compute with them, and need not meet denormal numbers or NaN.
  return at::zeros({size}, c10::CppTypeToScalarType<T>::value);
}

template <class T>
void solve_columns_of(const MadePlan& plan, const Tensor& context, int64_t rows, const SolveColumn& solve) {
  const Units<T> units(plan, context);
  // As many tiles as lie in the second-level cache, to share one call of `solve`, which costs microseconds.
  constexpr int64_t bytes = 1 << 20;
  const auto per_block = std::clamp<int64_t>(bytes / (units.size() * static_cast<int64_t>(sizeof(T))), 1, 8);
  const auto block_rows = per_block * tile_rows, size = units.size(), outputs = units.outputs();
  parallel_for(0, divided_up(rows, block_rows), 1, [&](int64_t first, int64_t last) {
    at::NoGradGuard no_grad;  // worker threads have modes of their own
    const Tensor tiles = memory<T>(per_block * size), columns = memory<T>(outputs * tile_rows);
    T *tile = tiles.mutable_data_ptr<T>(), *column = columns.mutable_data_ptr<T>();
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * block_rows, here = std::min(rows - begin, block_rows);
      const auto each_tile = [&](const auto& f) {
        for (int64_t i = 0; i < here; i += tile_rows) f(tile + i / tile_rows * size, i, std::min(here - i, tile_rows));
      };
      each_tile([&](T* at, int64_t i, int64_t count) { units.begin(at, begin + i, count); });
      for (int64_t place = 0; place < units.features(); ++place) {
        Tensor parameters = at::empty({here, 1, outputs}, tiles.options());
        T* to = parameters.mutable_data_ptr<T>();
        each_tile([&](T* at, int64_t i, int64_t count) {
          units.outputs_at(place, at, column);
          units.transpose(column, outputs, count, to + i * outputs);
        });
        const Tensor value = solve(plan.sequence[place], begin, parameters).contiguous();
        const Tensor cosine = plan.periodic ? value.cos() : value, sine = plan.periodic ? value.sin() : value;
        each_tile([&](T* at, int64_t i, int64_t count) {
          T* input = units.input(place, at);
          std::copy_n(cosine.const_data_ptr<T>() + i, count, input);
          if (plan.periodic) std::copy_n(sine.const_data_ptr<T>() + i, count, input + tile_rows);
          units.fill_after(place, at);
        });
      }
    }
  });
}

template <class T>
Tensor pass_of(const MadePlan& plan, const Tensor& x, const Tensor& context) {
  const Units<T> units(plan, context);
  const auto rows = x.size(0), outputs = units.features() * units.outputs();
  auto out = at::empty({rows, outputs}, x.options());
  const T* points = x.const_data_ptr<T>();
  T* to = out.template mutable_data_ptr<T>();
  parallel_for(0, divided_up(rows, tile_rows), 1, [&](int64_t first, int64_t last) {
    const Tensor scratch = memory<T>(units.size() + outputs * tile_rows);
    T* tile = scratch.mutable_data_ptr<T>();
    for (int64_t row = first * tile_rows; row < std::min(last * tile_rows, rows); row += tile_rows)
      units.pass(points, row, std::min(rows - row, tile_rows), tile, tile + units.size(), to);
  });
  return out;
}

}  // namespace

Tensor pass(const MadePlan& plan, const Tensor& x, const Tensor& context) {
  Tensor out;
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pass", [&] { out = pass_of<scalar_t>(plan, x.contiguous(), context); });
  return out;
}

void solve_columns(const MadePlan& plan, const Tensor& context, int64_t rows, const SolveColumn& solve) {
  AT_DISPATCH_FLOATING_TYPES(plan.last.weight.scalar_type(), "solve_columns",
                             [&] { solve_columns_of<scalar_t>(plan, context, rows, solve); });
}

template <class T>
void solve_tiles(const MadePlan& plan, const Tensor& context, int64_t rows, const SolveTile<T>& solve) {
  const Units<T> units(plan, context);
  parallel_for(0, divided_up(rows, tile_rows), 1, [&](int64_t first, int64_t last) {
    const Tensor scratch = memory<T>(units.size() + units.outputs() * tile_rows);
    T *tile = scratch.mutable_data_ptr<T>(), *parameters = tile + units.size();
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * tile_rows;
      units.begin(tile, begin, std::min(rows - begin, tile_rows));
      for (int64_t place = 0; place < units.features(); ++place) {
        units.outputs_at(place, tile, parameters);
        T* input = units.input(place, tile);
        solve(plan.sequence[place], begin, parameters, input);
        if (plan.periodic) units.turn(input, tile_rows);
        units.fill_after(place, tile);
      }
    }
  });
}
template void solve_tiles(const MadePlan&, const Tensor&, int64_t, const SolveTile<float>&);
template void solve_tiles(const MadePlan&, const Tensor&, int64_t, const SolveTile<double>&);

}  // namespace diffeo
