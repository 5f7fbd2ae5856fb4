#pragma once

#include "diffeo/data/dataset.h"

namespace diffeo {

/// Rows that lie somewhere else than in memory and are fetched in blocks. `read` is called from another thread.
class BlockSource {
 public:
  virtual ~BlockSource() = default;
  virtual int64_t blocks() const = 0;
  virtual int64_t rows_in(int64_t block) const = 0;  ///< known without reading
  virtual Batch read(int64_t block) const = 0;       ///< CPU tensors with rows_in(block) rows
};

/// A dataset that fetches blocks ahead, in a thread, into buffers of about `buffer_rows` rows; at most two are held.
/// Shuffling takes the blocks in random order and shuffles the rows within each buffer. What goes wrong in the thread
/// is thrown by `next`.
DatasetPtr streamed(std::shared_ptr<const BlockSource> source, int64_t buffer_rows);

}  // namespace diffeo
