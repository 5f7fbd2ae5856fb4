#include "diffeo/data/dequantize.h"

#include <ATen/CPUGeneratorImpl.h>

#include "diffeo/data/shuffle.h"

namespace diffeo {
namespace {

class NoisyStream : public BatchStream {
 public:
  NoisyStream(std::unique_ptr<BatchStream> rows, std::vector<int64_t> columns, uint64_t seed)
      : rows_(std::move(rows)), columns_(std::move(columns)), seed_(seed) {}

  bool next(Batch& batch) override {
    if (!rows_->next(batch)) return false;
    // A seed for each batch, so that skipping draws nothing.
    batch.x = dequantize(batch.x, columns_, mixed(seed_, index_++));
    return true;
  }
  void skip(int64_t batches) override {
    rows_->skip(batches);
    index_ += batches;
  }

 private:
  std::unique_ptr<BatchStream> rows_;
  std::vector<int64_t> columns_;
  uint64_t seed_;
  int64_t index_ = 0;
};

}  // namespace

Tensor dequantize(const Tensor& x, const std::vector<int64_t>& columns, uint64_t seed) {
  auto noisy = x.clone();
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const auto shape = std::vector{x.size(0), static_cast<int64_t>(columns.size())};
  const auto noise = torch::rand(shape, generator, x.options().device(torch::kCPU)).to(x.device());
  for (size_t i = 0; i < columns.size(); ++i)
    noisy.select(1, columns[i]).add_(noise.select(1, static_cast<int64_t>(i)));
  return noisy;
}

std::unique_ptr<BatchStream> dequantized(std::unique_ptr<BatchStream> rows, std::vector<int64_t> columns,
                                         uint64_t seed) {
  return std::make_unique<NoisyStream>(std::move(rows), std::move(columns), seed);
}

}  // namespace diffeo
