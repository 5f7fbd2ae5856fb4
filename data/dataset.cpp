#include "diffeo/data/dataset.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "diffeo/data/shuffle.h"
#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

/// Applies `body` to every tensor of a batch that is defined.
template <class Body>
Batch each(const Batch& batch, Body&& body) {
  const auto one = [&](const Tensor& tensor) { return tensor.defined() ? body(tensor) : tensor; };
  return {one(batch.x), one(batch.context), one(batch.weight), one(batch.label)};
}

class MemoryStream : public BatchStream {
 public:
  /// `order` is undefined for the order of the rows themselves.
  MemoryStream(Batch rows, Tensor order, int64_t batch_size)
      : rows_(std::move(rows)), order_(std::move(order)), batch_size_(batch_size) {
    check(batch_size > 0, "batch size must be at least 1, got ", batch_size);
  }

  bool next(Batch& batch) override {
    const auto begin = position_, end = std::min(rows_.x.size(0), begin + batch_size_);
    if (begin >= end) return false;
    position_ = end;
    const auto chosen = order_.defined() ? order_.narrow(0, begin, end - begin) : Tensor();
    batch = each(rows_, [&](const Tensor& rows) {
      return chosen.defined() ? rows.index_select(0, chosen.to(rows.device())) : rows.narrow(0, begin, end - begin);
    });
    return true;
  }

  void skip(int64_t batches) override {
    check(batches >= 0, "cannot skip ", batches, " batches");
    // Compared in batches: a huge number must not overflow.
    const auto left = (rows_.x.size(0) - position_ + batch_size_ - 1) / batch_size_;
    position_ = batches >= left ? rows_.x.size(0) : position_ + batches * batch_size_;
  }

 private:
  Batch rows_;
  Tensor order_;
  int64_t batch_size_, position_ = 0;
};

class MemoryDataset : public Dataset {
 public:
  explicit MemoryDataset(Batch rows) : rows_(std::move(rows)) {
    check(rows_.x.defined() && rows_.x.dim() > 0, "a dataset needs points x of shape (N, *event)");
    const auto same = [&](const Tensor& tensor, const char* name) {
      check(!tensor.defined() || (tensor.dim() > 0 && tensor.size(0) == rows_.x.size(0)), "dataset: x has ",
            rows_.x.size(0), " rows, but ", name, " has shape ", tensor.defined() ? tensor.sizes() : at::IntArrayRef());
    };
    same(rows_.context, "context");
    same(rows_.weight, "weight");
    same(rows_.label, "label");
  }

  int64_t rows() const override { return rows_.x.size(0); }

  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const override {
    const auto order = shuffled_indices(rows(), {seed, static_cast<uint64_t>(epoch)});
    return std::make_unique<MemoryStream>(rows_, at::tensor(order, at::kLong), batch_size);
  }

  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override {
    return std::make_unique<MemoryStream>(rows_, Tensor(), batch_size);
  }

 private:
  Batch rows_;
};

}  // namespace

DatasetPtr in_memory(Batch rows) { return std::make_shared<MemoryDataset>(std::move(rows)); }

DatasetPtr no_data(int64_t rows) {
  check(rows >= 0, "no_data: the number of rows must not be negative, got ", rows);
  return in_memory({.x = at::empty({rows, 0})});
}

}  // namespace diffeo
