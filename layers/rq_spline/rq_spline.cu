// The spline on CUDA: a team of threads to a row, each taking every so many elements of it. The arithmetic is that of
// the CPU, in rq_spline_kernel.h, with exponentials computed again where the CPU keeps them.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include "diffeo/layers/rq_spline/rq_spline_kernel.h"
#include "diffeo/layers/rq_spline/rq_spline_schema.h"

namespace diffeo::rq_spline {
namespace {

using at::Tensor;
using namespace portable;

/// What every element of a pass has in common.
template <class T>
struct Task {
  Frame<T> frame;
  Tails tails;
  int bins, size;  // K and P
  bool shared;
  int64_t rows, columns;
  const T *x, *parameters;

  __device__ const T* raw(int64_t row, int64_t column) const {
    return parameters + (shared ? column : row * columns + column) * size;
  }
};

/// e^(sharpness (raw - largest)) / their sum, for the raw sizes of one element.
template <class T>
class Parts {
 public:
  __device__ Parts(const T* raw, int bins, T sharpness) : raw_(raw), top_(raw[0]), sharpness_(sharpness) {
    for (int k = 1; k < bins; ++k) top_ = larger(top_, raw[k]);
    T sum = 0;
    for (int k = 0; k < bins; ++k) sum += exp_nonpositive(sharpness_ * (raw[k] - top_));
    per_sum_ = T(1) / sum;
  }
  __device__ T operator()(int k) const { return exp_nonpositive(sharpness_ * (raw_[k] - top_)) * per_sum_; }

 private:
  const T* raw_;
  T top_, sharpness_, per_sum_;
};

/// The parameters of one element, as `find` wants them.
template <class T>
struct Element {
  const T* raw;
  const Task<T>& task;
  Parts<T> widths, heights;

  __device__ Element(const T* raw, const Task<T>& task)
      : raw(raw),
        task(task),
        widths(raw, task.bins, task.frame.sharpness),
        heights(raw + task.bins, task.bins, task.frame.sharpness) {}

  __device__ T width(int k) const { return task.frame.least_width + task.frame.spread_width * widths(k); }
  __device__ T height(int k) const { return task.frame.least_height + task.frame.spread_height * heights(k); }
  __device__ T slope(int k) const {
    if (task.tails == Tails::linear) return k == 0 || k == task.bins ? T(0) : raw[2 * task.bins + k - 1];
    return raw[2 * task.bins + (task.tails == Tails::circular && k == task.bins ? 0 : k)];
  }
};

template <class T, bool inverse>
__global__ void forward_kernel(Task<T> task, T* value, T* log_det) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  T total = 0;
  if (row < task.rows)
    for (int64_t column = threadIdx.x; column < task.columns; column += blockDim.x) {
      const int64_t i = row * task.columns + column;
      const auto point = map<inverse>(Element<T>(task.raw(row, column), task), task.x[i], task.frame, task.bins);
      value[i] = point.value;
      total += point.log_slope;
    }
  for (int offset = blockDim.x / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
  if (row < task.rows && threadIdx.x == 0) log_det[row] = total;
}

/// Derivatives by raw sizes from those by two knots.
template <class T>
__device__ void put_by_sizes(T* by_raw, const Parts<T>& parts, T spread, T index, T lower, T upper, int bins) {
  T mean = 0;
  for (int k = 0; k < bins; ++k) mean += parts(k) * by_size(index, lower, upper, k);
  for (int k = 0; k < bins; ++k) by_raw[k] = spread * parts(k) * (by_size(index, lower, upper, k) - mean);
}

template <class T, bool inverse>
__global__ void backward_kernel(Task<T> task, const T* by_value, const T* by_log_det, T* by_x, T* by_parameters) {
  const int64_t row = blockIdx.x * int64_t{blockDim.y} + threadIdx.y;
  if (row >= task.rows) return;
  const int bins = task.bins;
  for (int64_t column = threadIdx.x; column < task.columns; column += blockDim.x) {
    const int64_t i = row * task.columns + column;
    const Element<T> element(task.raw(row, column), task);
    const auto g = map_back<inverse>(element, task.x[i], by_value[i], by_log_det[row], task.frame, bins);
    by_x[i] = g.given;
    T* to = by_parameters + i * task.size;
    put_by_sizes(to, element.widths, task.frame.sharpness * task.frame.spread_width, g.index, g.x0, g.x1, bins);
    put_by_sizes(to + bins, element.heights, task.frame.sharpness * task.frame.spread_height, g.index, g.y0, g.y1,
                 bins);
    const int first = task.tails == Tails::linear ? 1 : 0;
    for (int j = 2 * bins; j < task.size; ++j) to[j] = by_slope(g, j - 2 * bins + first);
    if (task.tails == Tails::circular) to[2 * bins] += by_slope(g, bins);
  }
}

template <class T>
Task<T> task_of(const Tensor& x, const Tensor& parameters, const Shape& shape) {
  return {frame_of<T>(shape),
          shape.tails,
          static_cast<int>(shape.bins),
          static_cast<int>(parameters.size(-1)),
          is_shared(x, parameters),
          x.numel() / x.size(-1),
          x.size(-1),
          x.const_data_ptr<T>(),
          parameters.const_data_ptr<T>()};
}

/// Threads (a team to a row, no larger than a warp; 128 in all) and blocks.
template <class T>
std::pair<dim3, dim3> grid_of(const Task<T>& task) {
  unsigned team = 1;
  while (team < 32 && team < task.columns) team *= 2;
  const dim3 block(team, 128 / team);
  return {dim3(static_cast<unsigned>((task.rows + block.y - 1) / block.y)), block};
}

Pair forward_cuda(const Tensor& x, const Tensor& parameters, at::ArrayRef<double> numbers, bool inverse) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto xc = x.contiguous(), pc = parameters.contiguous();
  auto value = at::empty_like(xc), log_det = at::empty(x.sizes().slice(0, x.dim() - 1), x.options());
  if (x.numel() == 0) return {value, log_det.zero_()};
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::rq_spline", [&] {
    const auto task = task_of<scalar_t>(xc, pc, shape_from(numbers));
    const auto [grid, block] = grid_of(task);
    const auto run = inverse ? forward_kernel<scalar_t, true> : forward_kernel<scalar_t, false>;
    run<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(task, value.mutable_data_ptr<scalar_t>(),
                                                               log_det.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return {value, log_det};
}

Pair backward_cuda(const Tensor& x, const Tensor& parameters, const Tensor& by_value, const Tensor& by_log_det,
                   at::ArrayRef<double> numbers, bool inverse) {
  const c10::cuda::CUDAGuard guard(x.device());
  const auto xc = x.contiguous(), pc = parameters.contiguous(), gv = by_value.contiguous(),
             gl = by_log_det.contiguous();
  auto by_x = at::empty_like(xc);
  if (x.numel() == 0) return {by_x, at::empty_like(pc).zero_()};
  const bool shared = is_shared(x, parameters);
  // Shared parameters get one gradient for each row first: their sum is then the same in every run.
  auto by_parameters = shared ? at::empty({gl.numel(), pc.size(0), pc.size(1)}, pc.options()) : at::empty_like(pc);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "diffeo::rq_spline_backward", [&] {
    const auto task = task_of<scalar_t>(xc, pc, shape_from(numbers));
    const auto [grid, block] = grid_of(task);
    const auto run = inverse ? backward_kernel<scalar_t, true> : backward_kernel<scalar_t, false>;
    run<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        task, gv.const_data_ptr<scalar_t>(), gl.const_data_ptr<scalar_t>(), by_x.mutable_data_ptr<scalar_t>(),
        by_parameters.mutable_data_ptr<scalar_t>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return {by_x, shared ? by_parameters.sum(0) : by_parameters};
}

TORCH_LIBRARY_IMPL(diffeo, CUDA, ops) {
  ops.impl("rq_spline", forward_cuda);
  ops.impl("rq_spline_backward", backward_cuda);
}

}  // namespace
}  // namespace diffeo::rq_spline
