#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// Within its scope the layers of this thread whose log_det depends on no input (Traits::constant_log_det) give 0 in
/// its place, whichever way they go and however deep they stand in others. So a flow gives minus its energy instead of
/// its log density: what is left out is the log of the normalising constant.
///
/// Chao et al., "Training energy-based normalizing flow with score-matching objectives", 2023,
/// https://arxiv.org/abs/2305.15267, section 4.
class ConstantLogDetGuard {
 public:
  enum class Mode {
    leave_out,  ///< they are not computed where a layer can do without
    collect     ///< they are computed and added up, each as its layer says it
  };

  explicit ConstantLogDetGuard(Mode mode = Mode::leave_out);
  ~ConstantLogDetGuard();
  ConstantLogDetGuard(const ConstantLogDetGuard&) = delete;
  ConstantLogDetGuard& operator=(const ConstantLogDetGuard&) = delete;

  Mode mode() const { return mode_; }
  /// The sum of the log_dets that were left out so far, (*batch), nats; undefined if there was none.
  const Tensor& collected() const { return collected_; }
  void add(const Tensor& log_det);

  /// The innermost guard of this thread, or null.
  static ConstantLogDetGuard* current();

  /// Within its scope there is no guard: layers say all of their log_dets.
  class Suspended {
   public:
    Suspended();
    ~Suspended();
    Suspended(const Suspended&) = delete;
    Suspended& operator=(const Suspended&) = delete;

   private:
    ConstantLogDetGuard* outer_;
  };

 private:
  Mode mode_;
  Tensor collected_;
  ConstantLogDetGuard* outer_;
};

}  // namespace diffeo
