#include "diffeo/data/stream.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <future>
#include <numeric>

#include "diffeo/data/shuffle.h"
#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

constexpr std::array<Tensor Batch::*, 4> members{&Batch::x, &Batch::context, &Batch::weight, &Batch::label};

/// Which blocks, in which order, make up one buffer, and which rows of the epoch it holds.
struct Buffer {
  std::vector<int64_t> blocks;
  int64_t begin = 0, rows = 0;
};

/// Puts the rows of `from` at the places `where` of `to`. Plain copies: this runs beside the training step, which
/// needs the threads that a tensor operation would take.
void scatter_rows(const Tensor& from, const int64_t* where, Tensor& to) {
  const auto values = from.contiguous();
  if (values.numel() == 0) return;
  const auto bytes = values.nbytes() / values.size(0);
  const auto* source = static_cast<const char*>(values.const_data_ptr());
  auto* target = static_cast<char*>(to.data_ptr());
  for (int64_t i = 0; i < values.size(0); ++i) std::memcpy(target + where[i] * bytes, source + i * bytes, bytes);
}

class BufferedStream : public BatchStream {
 public:
  /// `order` of the blocks; `seeds` for the order within buffers, or none to keep it.
  BufferedStream(std::shared_ptr<const BlockSource> source, const std::vector<int64_t>& order,
                 std::optional<std::pair<uint64_t, uint64_t>> seeds, int64_t buffer_rows, int64_t batch_size)
      : source_(std::move(source)), seeds_(seeds), batch_size_(batch_size) {
    check(batch_size > 0, "batch size must be at least 1, got ", batch_size);
    for (const auto block : order) {
      if (buffers_.empty() || buffers_.back().rows >= buffer_rows) buffers_.push_back({{}, rows_, 0});
      buffers_.back().blocks.push_back(block);
      buffers_.back().rows += source_->rows_in(block);
      rows_ += source_->rows_in(block);
    }
  }

  bool next(Batch& batch) override {
    if (position_ >= rows_) return false;
    const auto end = std::min(rows_, position_ + batch_size_);
    std::vector<Batch> pieces;
    for (auto at = position_; at < end;) {
      const auto& buffer = hold_buffer_of(at);
      const auto until = std::min(end, buffer.begin + buffer.rows);
      auto& piece = pieces.emplace_back();
      for (const auto member : members)
        if ((held_.*member).defined()) piece.*member = (held_.*member).narrow(0, at - buffer.begin, until - at);
      at = until;
    }
    for (const auto member : members) {
      std::vector<Tensor> parts;
      for (const auto& piece : pieces)
        if ((piece.*member).defined()) parts.push_back(piece.*member);
      batch.*member = parts.empty() ? Tensor() : parts.size() == 1 ? parts[0] : at::cat(parts);
    }
    position_ = end;
    return true;
  }

  void skip(int64_t batches) override {
    check(batches >= 0, "cannot skip ", batches, " batches");
    const auto left = (rows_ - position_ + batch_size_ - 1) / batch_size_;
    position_ = batches >= left ? rows_ : position_ + batches * batch_size_;
  }

 private:
  /// Sees to it that the buffer with row `row` of the epoch is held and the one after it is on its way.
  const Buffer& hold_buffer_of(int64_t row) {
    const auto after = std::upper_bound(buffers_.begin(), buffers_.end(), row,
                                        [](int64_t value, const Buffer& buffer) { return value < buffer.begin; });
    const auto index = static_cast<size_t>(after - buffers_.begin()) - 1;
    if (held_index_ != index) {
      held_ = {};  // before the next one is made: two at most
      held_index_.reset();
      if (coming_index_ != index) fetch(index);
      coming_index_.reset();
      held_ = coming_.get();
      held_index_ = index;
      if (index + 1 < buffers_.size()) fetch(index + 1);
    }
    return buffers_[index];
  }

  void fetch(size_t index) {
    if (coming_.valid()) coming_.wait();
    coming_ = std::async(std::launch::async, [this, index] { return load(index); });
    coming_index_ = index;
  }

  Batch load(size_t index) const {
    const auto& buffer = buffers_[index];
    std::vector<int64_t> places(buffer.rows);
    std::iota(places.begin(), places.end(), 0);
    if (seeds_) places = shuffled_indices(buffer.rows, {seeds_->first, seeds_->second, index + 1});
    Batch rows;
    int64_t filled = 0;
    for (const auto block : buffer.blocks) {
      const auto read = source_->read(block);
      for (const auto member : members) {
        const auto& from = read.*member;
        if (!from.defined()) continue;
        auto& to = rows.*member;
        if (!to.defined()) {
          auto shape = from.sizes().vec();
          shape[0] = buffer.rows;
          to = at::empty(shape, from.options());
        }
        TORCH_INTERNAL_ASSERT(from.size(0) == source_->rows_in(block));
        scatter_rows(from, places.data() + filled, to);
      }
      filled += source_->rows_in(block);
    }
    return rows;
  }

  std::shared_ptr<const BlockSource> source_;
  std::optional<std::pair<uint64_t, uint64_t>> seeds_;
  int64_t batch_size_, rows_ = 0, position_ = 0;
  std::vector<Buffer> buffers_;
  Batch held_;
  std::optional<size_t> held_index_, coming_index_;
  std::future<Batch> coming_;  // last: its destructor waits for the thread, which uses the others
};

class StreamedDataset : public Dataset {
 public:
  StreamedDataset(std::shared_ptr<const BlockSource> source, int64_t buffer_rows)
      : source_(std::move(source)), buffer_rows_(buffer_rows) {
    check(buffer_rows > 0, "a buffer must hold at least one row, got ", buffer_rows);
    for (int64_t block = 0; block < source_->blocks(); ++block) rows_ += source_->rows_in(block);
  }

  int64_t rows() const override { return rows_; }

  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const override {
    const std::pair seeds{seed, static_cast<uint64_t>(epoch)};
    return std::make_unique<BufferedStream>(source_, shuffled_indices(source_->blocks(), {seed, seeds.second, 0}),
                                            seeds, buffer_rows_, batch_size);
  }

  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override {
    std::vector<int64_t> order(source_->blocks());
    std::iota(order.begin(), order.end(), 0);
    return std::make_unique<BufferedStream>(source_, order, std::nullopt, buffer_rows_, batch_size);
  }

 private:
  std::shared_ptr<const BlockSource> source_;
  int64_t buffer_rows_, rows_ = 0;
};

}  // namespace

DatasetPtr streamed(std::shared_ptr<const BlockSource> source, int64_t buffer_rows) {
  return std::make_shared<StreamedDataset>(std::move(source), buffer_rows);
}

}  // namespace diffeo
