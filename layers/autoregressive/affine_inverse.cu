// The inverse of an autoregressive layer of affine maps on CUDA. A lane of every warp has a row of the tile; the warps
// of a block share out the units of a degree. Never run on a GPU yet.
#include "diffeo/layers/autoregressive/affine_inverse.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>

#include "diffeo/layers/autoregressive/affine_tile_kernel.h"

namespace diffeo::affine_tile {
namespace {

using namespace portable;
using made::Activation;

constexpr int rows_of_tile = 32, warps = 8;
constexpr int most_steps = 22;  // a residual network of seven blocks

/// The tile is (inputs and hidden units of all buffers, rows_of_tile), as in made_inverse_cpu.h.
template <class T>
struct Task {
  Inversion<T> of;
  made::UnitStep<T> steps[most_steps];
};

/// A unit's sum over the first inputs, for the row that `from` begins at.
template <class T>
__device__ T product(const made::UnitMap<T>& map, int64_t unit, int64_t inputs, const T* from) {
  const T* weight = map.weight + unit * map.stride;
  T sum = map.bias[unit];
  for (int64_t k = 0; k < inputs; ++k) sum += weight[k] * from[k * rows_of_tile];
  return sum;
}

template <class T>
__device__ T sigmoid(T x) {
  const T e = exp_minus_magnitude(x);
  return (x < 0 ? e : T(1)) / (T(1) + e);
}

template <class T>
__device__ T activated(Activation activation, T x) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0 ? T(0) : x;
    case Activation::leaky_relu:
      return x < 0 ? x * T(0.01) : x;
    case Activation::tanh:
      return std::tanh(x);
    case Activation::sigmoid:
      return sigmoid(x);
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::gelu:
      return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
    case Activation::elu:
      return x < 0 ? std::expm1(x) : x;
    case Activation::softplus:  // LibTorch's is the identity beyond 20
      return x > 20 ? x : larger(x, T(0)) + log1p_unit(exp_minus_magnitude(x));
  }
  return x;
}

/// The thread's row of a buffer. Buffer 0 is the inputs.
template <class T>
__device__ T* buffer_of(const made::UnitProgram<T>& program, T* tile, int buffer) {
  if (buffer == 0) return tile;
  return tile + rows_of_tile * (program.context + program.features + (buffer - 1) * program.width);
}

/// The hidden units of a degree. All threads of a block come here, and leave when all units are in the tile.
template <class T>
__device__ void fill(const Task<T>& task, int64_t degree, T* tile) {
  const auto& program = task.of.program;
  const int64_t first = degree == 0 ? 0 : program.units[degree - 1], end = program.units[degree];
  if (first == end) return;
  for (int i = 0; i < program.step_count; ++i) {
    const auto& step = task.steps[i];
    const T* from = buffer_of(program, tile, step.source);
    T* to = buffer_of(program, tile, step.target);
    const int64_t inputs = step.source == 0 ? program.context + degree : end;
    for (int64_t unit = first + threadIdx.y; unit < end; unit += warps) {
      T value = step.map.weight != nullptr ? product(step.map, unit, inputs, from) : from[unit * rows_of_tile];
      if (step.gate.weight != nullptr) value *= sigmoid(product<T>(step.gate, unit, program.context, tile));
      if (step.scale != nullptr) value = value * step.scale[unit] + step.shift[unit];
      value = activated(step.activation, value);
      if (step.add) value += to[unit * rows_of_tile];
      to[unit * rows_of_tile] = value;
    }
    __syncthreads();  // the next step reads units of other warps
  }
}

template <class T>
__device__ void scale_of(Scale scale, T a, T cap, T& size, T& s) {
  switch (scale) {
    case Scale::bounded:
      return portable::scale_of<Scale::bounded>(a, cap, size, s);
    case Scale::exp:
      return portable::scale_of<Scale::exp>(a, cap, size, s);
    case Scale::sigmoid:
      return portable::scale_of<Scale::sigmoid>(a, cap, size, s);
    case Scale::softplus:
      return portable::scale_of<Scale::softplus>(a, cap, size, s);
  }
}

template <class T>
__global__ void __launch_bounds__(rows_of_tile* warps) invert(const __grid_constant__ Task<T> task) {
  extern __shared__ __align__(16) unsigned char memory[];
  T* tile = reinterpret_cast<T*>(memory) + threadIdx.x;
  const auto& of = task.of;
  const auto& program = of.program;
  const int64_t row = blockIdx.x * int64_t{rows_of_tile} + threadIdx.x, features = program.features;
  const bool there = row < of.rows;  // the last tile may have rows to spare, which compute with zeros
  for (int64_t c = threadIdx.y; c < program.context; c += warps)
    tile[c * rows_of_tile] = there ? of.context[row * program.context + c] : T(0);
  __syncthreads();
  fill(task, 0, tile);
  T log_det = 0;
  for (int64_t place = 0; place < features; ++place) {
    if (threadIdx.y == 0) {
      const int64_t feature = of.sequence[place];
      const int64_t inputs = program.last_source == 0 ? program.context + place : program.units[place];
      const T* from = buffer_of(program, tile, program.last_source);
      const T a = product(program.last, 2 * feature, inputs, from);
      const T t = product(program.last, 2 * feature + 1, inputs, from);
      T size, s;
      scale_of(of.scale, a, of.cap, size, s);
      const T x = ((there ? of.y[row * features + feature] : T(0)) - t) / size;
      log_det -= s;
      tile[(program.context + place) * rows_of_tile] = x;
      if (there) of.x[row * features + feature] = x;
    }
    __syncthreads();
    if (place + 1 < features) fill(task, place + 1, tile);
  }
  if (there && threadIdx.y == 0) of.log_det[row] = log_det;
}

template <class T>
bool run(const Inversion<T>& inversion, c10::Device device) {
  const auto& program = inversion.program;
  if (program.step_count > most_steps || program.outputs != 2 || program.per_feature != 1) return false;
  const int64_t height = program.context + program.features + program.buffers * program.width;
  const int64_t bytes = height * rows_of_tile * static_cast<int64_t>(sizeof(T));
  int most = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device.index()));
  if (bytes > most) return false;
  const c10::cuda::CUDAGuard guard(device);
  C10_CUDA_CHECK(cudaFuncSetAttribute(invert<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  Task<T> task{.of = inversion};
  std::copy_n(program.steps, program.step_count, task.steps);
  const auto blocks = static_cast<unsigned>((inversion.rows + rows_of_tile - 1) / rows_of_tile);
  invert<T><<<blocks, dim3(rows_of_tile, warps), bytes, c10::cuda::getCurrentCUDAStream()>>>(task);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return true;
}

}  // namespace

bool invert_on_gpu(const Inversion<float>& inversion, c10::Device device) { return run(inversion, device); }
bool invert_on_gpu(const Inversion<double>& inversion, c10::Device device) { return run(inversion, device); }

}  // namespace diffeo::affine_tile
