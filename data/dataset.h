#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>

namespace diffeo {

using torch::Tensor;

/// Rows for one step of training. Tensors that do not apply are undefined.
struct Batch {
  Tensor x;        ///< (B, *event)
  Tensor context;  ///< (B, C)
  Tensor weight;   ///< (B), not negative
  Tensor label;    ///< (B) or (B, L)
};

/// Batches, one after another.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// Fills `batch` with the next rows; false at the end of the epoch. The last batch may be smaller.
  virtual bool next(Batch& batch) = 0;
  /// Leaves out `batches` batches, as `next` would have given them: how a resumed run finds its place.
  virtual void skip(int64_t batches) = 0;
};

/// A table of rows that can be walked in batches, in memory or streamed from a file.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t rows() const = 0;
  /// One epoch in an order that depends on (seed, epoch) only. Every row comes exactly once.
  virtual std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const = 0;
  /// One pass in the order of the file.
  virtual std::unique_ptr<BatchStream> in_order(int64_t batch_size) const = 0;
};

using DatasetPtr = std::shared_ptr<const Dataset>;

/// So many rows of nothing, x (N, 0): for objectives that draw their own points, as many as a batch has rows.
DatasetPtr no_data(int64_t rows);

/// A dataset that holds its rows in tensors of the same first length (undefined ones are left out).
DatasetPtr in_memory(Batch rows);

}  // namespace diffeo
