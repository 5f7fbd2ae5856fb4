// The affine map on CUDA: a team of threads to a row, so that neighbours read neighbouring elements and their pairs of
// parameters. The arithmetic is that of the CPU, in affine_kernel.h.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "diffeo/layers/affine/affine_kernel.h"
#include "diffeo/layers/affine/affine_schema.h"

namespace diffeo::affine {
namespace {

using at::Tensor;
using namespace portable;

/// What every element of a pass has in common.
template <class T>
struct Task {
  T cap;
  bool shared;
  int64_t rows, columns;
  const T *x, *parameters;

  __device__ const T* raw(int64_t row, int64_t column) const {
    return parameters + (shared ? column : row * columns + column) * 2;
  }
};

template <class T, class Kind>
__global__ void forward_kernel(Task<T> task, T* value, T* log_det) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  T total = 0;
  if (row < task.rows)
    for (int64_t column = threadIdx.x; column < task.columns; column += blockDim.x) {
      const int64_t i = row * task.columns + column;
      const T* raw = task.raw(row, column);
      const auto c = scaled<Kind::scale, Kind::inverse>(raw[0], task.cap);
      value[i] = map<Kind::inverse>(task.x[i], c.factor, raw[1]);
      total += Kind::inverse ? -c.log : c.log;
    }
  for (int offset = blockDim.x / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
  if (row < task.rows && threadIdx.x == 0) log_det[row] = total;
}

template <class T, class Kind>
__global__ void backward_kernel(Task<T> task, const T* by_value, const T* by_log_det, T* by_x, T* by_parameters) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  if (row >= task.rows) return;
  for (int64_t column = threadIdx.x; column < task.columns; column += blockDim.x) {
    const int64_t i = row * task.columns + column;
    const auto c = scaled<Kind::scale, Kind::inverse>(task.raw(row, column)[0], task.cap);
    by_x[i] = by_value[i] * c.factor;
    const auto by = map_back<Kind::inverse>(c, by_value[i], by_value[i] * task.x[i], by_log_det[row]);
    by_parameters[2 * i] = by.a;
    by_parameters[2 * i + 1] = by.t;
  }
}

template <class T>
Task<T> task_of(const Tensor& x, const Tensor& parameters, double cap) {
  return {static_cast<T>(cap), is_shared(x, parameters), x.numel() / x.size(-1),
          x.size(-1),          x.const_data_ptr<T>(),    parameters.const_data_ptr<T>()};
}

/// Threads (a team to a row, no larger than a warp; 128 in all) and blocks.
template <class T>
std::pair<dim3, dim3> grid_of(const Task<T>& task) {
  unsigned team = 1;
  while (team < 32 && team < task.columns) team *= 2;
  const dim3 block(team, 128 / team);
  return {dim3(static_cast<unsigned>((task.rows + block.y - 1) / block.y)), block};
}

Pair forward_cuda(const Tensor& x, const Tensor& parameters, int64_t scale, double cap, bool inverse) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto xc = x.contiguous(), pc = parameters.contiguous();
  auto value = at::empty_like(xc), log_det = at::empty(x.sizes().slice(0, x.dim() - 1), x.options());
  if (x.numel() == 0) return {value, log_det.zero_()};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::affine", [&] {
    const auto task = task_of<scalar_t>(xc, pc, cap);
    const auto [grid, block] = grid_of(task);
    const auto launch = [&, grid = grid, block = block](auto kind) {
      forward_kernel<scalar_t, decltype(kind)><<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
          task, value.mutable_data_ptr<scalar_t>(), log_det.mutable_data_ptr<scalar_t>());
    };
    with_kind(static_cast<Scale>(scale), inverse, launch);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return {value, log_det};
}

Pair backward_cuda(const Tensor& x, const Tensor& parameters, const Tensor& by_value, const Tensor& by_log_det,
                   int64_t scale, double cap, bool inverse) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto xc = x.contiguous(), pc = parameters.contiguous(), gv = by_value.contiguous(),
             gl = by_log_det.contiguous();
  auto by_x = at::empty_like(xc);
  if (x.numel() == 0) return {by_x, at::empty_like(pc).zero_()};
  const bool shared = is_shared(x, parameters);
  // Shared parameters get one gradient for each row first: their sum is then the same in every run.
  auto by_parameters = shared ? at::empty({gl.numel(), pc.size(0), pc.size(1)}, pc.options()) : at::empty_like(pc);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::affine_backward", [&] {
    const auto task = task_of<scalar_t>(xc, pc, cap);
    const auto [grid, block] = grid_of(task);
    const auto launch = [&, grid = grid, block = block](auto kind) {
      backward_kernel<scalar_t, decltype(kind)><<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
          task, gv.const_data_ptr<scalar_t>(), gl.const_data_ptr<scalar_t>(), by_x.mutable_data_ptr<scalar_t>(),
          by_parameters.mutable_data_ptr<scalar_t>());
    };
    with_kind(static_cast<Scale>(scale), inverse, launch);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return {by_x, shared ? by_parameters.sum(0) : by_parameters};
}

TORCH_LIBRARY_IMPL(diffeo, CUDA, ops) {
  ops.impl("affine", forward_cuda);
  ops.impl("affine_backward", backward_cuda);
}

}  // namespace
}  // namespace diffeo::affine
