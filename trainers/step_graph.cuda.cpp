// Never run on a GPU yet.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <exception>

#include "diffeo/layers/base/error.h"
#include "diffeo/trainers/step_graph.h"

namespace diffeo {
namespace {

using c10::cuda::CUDAStream;

/// What `then` is told from now on waits for what `first` was told so far.
void in_order(const CUDAStream& first, const CUDAStream& then) {
  c10::Event event(c10::DeviceType::CUDA);
  event.record(first.unwrap());
  event.block(then.unwrap());
}

/// Waiting for the device is an error within a scope, in all threads: a recording would be lost by it, and with it the
/// order of LibTorch's allocator and generators.
class NoWaiting {
 public:
  NoWaiting() : before_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  }
  ~NoWaiting() { c10::cuda::warning_state().set_sync_debug_mode(before_); }
  NoWaiting(const NoWaiting&) = delete;
  NoWaiting& operator=(const NoWaiting&) = delete;

 private:
  c10::cuda::SyncDebugMode before_;
};

/// Rehearses and records on a stream of its own: the default stream cannot be recorded, and libraries keep workspaces
/// for each stream, which the rehearsals allocate.
class CudaRecording : public Recording {
 public:
  explicit CudaRecording(torch::Device device) : device_(device), side_(stream_of(device)) {}

  Tensor rehearse(const Work& work) override {
    in_order(main(), side_);
    Tensor result;
    try {
      const c10::cuda::CUDAStreamGuard aside(side_);
      const NoWaiting strict;
      result = work();
    } catch (...) {
      side_.synchronize();  // what it was told already must not meet what follows
      throw;
    }
    in_order(side_, main());
    return result;
  }

  void record(const Work& work) override {
    in_order(main(), side_);
    side_.synchronize();
    const c10::cuda::CUDAStreamGuard aside(side_);
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    const auto pool = at::cuda::graph_pool_handle();
    std::exception_ptr problem;
    graph->capture_begin(pool);
    try {
      result_ = work();
    } catch (...) {
      problem = std::current_exception();
    }
    try {
      graph->capture_end();
    } catch (...) {
      if (!problem) problem = std::current_exception();
      abandon(pool);
    }
    if (problem) {
      result_.reset();
      std::rethrow_exception(problem);
    }
    graph_ = std::move(graph);
  }

  Tensor replay() override {
    graph_->replay();
    return result_;
  }

 private:
  static CUDAStream stream_of(torch::Device device) {
    check(device.is_cuda(), "graph: needs a model on a GPU, and this one is on the ",
          c10::DeviceTypeName(device.type()), "; set graph to auto or off");
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
  }
  CUDAStream main() const { return c10::cuda::getCurrentCUDAStream(device_.index()); }

  /// capture_end stops at the first trouble, and the allocator would go on to believe that a recording is under way.
  void abandon(at::cuda::MempoolId_t pool) const {
    try {
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device_.index(), pool);
      c10::cuda::CUDACachingAllocator::releasePool(device_.index(), pool);
    } catch (const std::exception&) {  // capture_end had come so far
    }
  }

  torch::Device device_;
  CUDAStream side_;
  std::unique_ptr<at::cuda::CUDAGraph> graph_;
  Tensor result_;
};

}  // namespace

std::unique_ptr<Recording> cuda_recording(torch::Device device) { return std::make_unique<CudaRecording>(device); }

}  // namespace diffeo
