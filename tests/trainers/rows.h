#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include "diffeo/trainers/fit.h"

namespace diffeo::testing {

/// Rows in memory, walked in an order that torch's own permutations make.
class Rows : public Dataset {
 public:
  explicit Rows(Batch rows) : rows_(std::move(rows)) {}
  int64_t rows() const override { return rows_.x.size(0); }
  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const override;
  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override;

 private:
  Batch rows_;
};

/// Two interlocking half circles with a little noise: (rows, 2).
Tensor moons(int64_t rows, uint64_t seed, const torch::TensorOptions& options = torch::kFloat32);

/// A small coupling flow of `features` features, with initial values that depend on `seed` only.
FlowPtr small_flow(int64_t features, uint64_t seed, const Json& net = {{"width", 16}}, int64_t couplings = 2);

/// Parameters and buffers of two modules are the same bits.
::testing::AssertionResult same_bits(const NamedTensors& got, const NamedTensors& want);

}  // namespace diffeo::testing
