#pragma once

#include <functional>
#include <memory>
#include <string>

#include "diffeo/data/dataset.h"

// A training step's arithmetic, recorded once and repeated: on a GPU, small flows spend their time on telling it what
// to do, kernel by kernel, and a CUDA graph tells it in one go.
namespace diffeo {

/// Work on a device, recorded once and repeated without the host's part in it.
class Recording {
 public:
  using Work = std::function<Tensor()>;
  virtual ~Recording() = default;
  /// Does the work as it would be recorded, and throws where the host would have to wait for the device.
  virtual Tensor rehearse(const Work& work) = 0;
  /// Records it, without doing it on the device.
  virtual void record(const Work& work) = 0;
  /// Does what was recorded. The result lies in the same memory each time.
  virtual Tensor replay() = 0;
};

/// A CUDA graph on `device`. Throws Error for another device than a GPU, and in a build without CUDA.
std::unique_ptr<Recording> cuda_recording(torch::Device device);

/// What the option `graph` asks for: none for `off`, and for `auto` on the CPU.
/// Throws SpecError for another name, Error for `on` where there is no GPU.
std::unique_ptr<Recording> recording_for(const std::string& mode, torch::Device device);

/// Computes something of batch after batch: as it is told the first few times, then, where the batches have one shape,
/// by a recording. The numbers are the same.
///
/// It computes without a recording for ever after if the computation draws random numbers (a recording of them would
/// need the generators' help), waits for the device, or cannot be recorded; and batches of another shape, as the last
/// of an epoch, always.
class StepGraph {
 public:
  struct Parts {
    /// Gives a new tensor on the batch's device. Work on the host is not repeated, so that nothing may depend on it.
    std::function<Tensor(const Batch&)> compute;
    /// Takes back what an unfinished computation has changed, or empty.
    std::function<void()> undo;
    /// Is told once, in a sentence, why there is no recording; or empty.
    std::function<void(const std::string&)> notice;
  };

  /// Without a recording, it only computes.
  StepGraph(std::unique_ptr<Recording> recording, torch::Device device, Parts parts);
  /// The result is valid until the next call.
  Tensor operator()(const Batch& batch);

 private:
  Tensor advance();
  void give_up(const std::string& why);

  std::unique_ptr<Recording> recording_;
  torch::Device device_;
  Parts parts_;
  Batch inputs_;  ///< what the recording reads
  int rehearsed_ = 0;
  bool recorded_ = false;
};

}  // namespace diffeo
