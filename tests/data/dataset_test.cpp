// Batches: every row once in an epoch, in an order that depends on seed and epoch only, in memory and streamed alike.
#include "diffeo/data/dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "data/scratch.h"
#include "diffeo/data/stream.h"

namespace diffeo::testing {
namespace {

Batch numbered(int64_t begin, int64_t end) {
  const auto number = torch::arange(begin, end, torch::kFloat64);
  return {.x = torch::stack({number, -number}, 1),
          .context = number.unsqueeze(1),
          .weight = number + 1,
          .label = number.to(torch::kLong)};
}

/// Rows 0 ... 999 in blocks of different lengths; the block `broken` cannot be read.
class NumberedBlocks : public BlockSource {
 public:
  explicit NumberedBlocks(int64_t broken = -1) : broken_(broken) {}
  int64_t blocks() const override { return static_cast<int64_t>(ends_.size()); }
  int64_t rows_in(int64_t block) const override { return ends_[block] - begin_of(block); }
  Batch read(int64_t block) const override {
    check(block != broken_, "block ", block, " is broken");
    ++reads;
    return numbered(begin_of(block), ends_[block]);
  }
  mutable std::atomic<int> reads = 0;

 private:
  int64_t begin_of(int64_t block) const { return block == 0 ? 0 : ends_[block - 1]; }
  int64_t broken_;
  std::vector<int64_t> ends_{100, 250, 250, 333, 500, 512, 700, 903, 1000};
};

std::vector<DatasetPtr> datasets() {
  return {in_memory(numbered(0, 1000)), streamed(std::make_shared<NumberedBlocks>(), 300),
          streamed(std::make_shared<NumberedBlocks>(), 1), streamed(std::make_shared<NumberedBlocks>(), 5000)};
}

std::vector<int64_t> order_of(BatchStream& stream, int64_t batch_size) {
  std::vector<int64_t> order;
  for (Batch batch; stream.next(batch);) {
    EXPECT_LE(batch.x.size(0), batch_size);
    EXPECT_TRUE(torch::equal(batch.x.select(1, 0), batch.label.to(torch::kFloat64)));
    EXPECT_TRUE(torch::equal(batch.x.select(1, 0), -batch.x.select(1, 1)));
    EXPECT_TRUE(torch::equal(batch.x.select(1, 0), batch.context.squeeze(1)));
    EXPECT_TRUE(torch::equal(batch.x.select(1, 0), batch.weight - 1));
    for (int64_t i = 0; i < batch.label.size(0); ++i) order.push_back(batch.label[i].item<int64_t>());
  }
  return order;
}

TEST(Dataset, EveryRowComesOnceInAnEpoch) {
  for (const auto& data : datasets()) {
    ASSERT_EQ(data->rows(), 1000);
    for (const int64_t batch_size : {1, 7, 128, 1000, 4096}) {
      auto order = order_of(*data->shuffled(batch_size, 3, 0), batch_size);
      std::sort(order.begin(), order.end());
      ASSERT_EQ(order.size(), 1000u);
      for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(order[i], i);
    }
  }
}

TEST(Dataset, TheOrderDependsOnSeedAndEpochOnly) {
  for (const auto& data : datasets()) {
    const auto order = order_of(*data->shuffled(100, 3, 0), 100);
    EXPECT_EQ(order, order_of(*data->shuffled(33, 3, 0), 33));
    EXPECT_NE(order, order_of(*data->shuffled(100, 4, 0), 100));
    EXPECT_NE(order, order_of(*data->shuffled(100, 3, 1), 100));
    EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
    const auto in_order = order_of(*data->in_order(100), 100);
    EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end()));
  }
}

TEST(Dataset, TheOrderIsTheSameEverywhere) {
  // Written down once: a run that was begun with one compiler is resumed with another.
  const auto order = order_of(*in_memory(numbered(0, 10))->shuffled(10, 1, 2), 10);
  EXPECT_EQ(order, (std::vector<int64_t>{3, 7, 2, 8, 4, 9, 0, 6, 1, 5}));
}

TEST(Dataset, SkippingEqualsReadingOn) {
  for (const auto& data : datasets()) {
    for (const int64_t skipped : {0, 1, 5, 15, 16, 1000}) {
      const auto all = data->shuffled(64, 9, 4), rest = data->shuffled(64, 9, 4);
      Batch batch;
      for (int64_t i = 0; i < skipped; ++i) all->next(batch);
      rest->skip(skipped);
      EXPECT_EQ(order_of(*rest, 64), order_of(*all, 64)) << skipped;
    }
    const auto stream = data->shuffled(64, 9, 4);
    stream->skip(std::numeric_limits<int64_t>::max());
    Batch batch;
    EXPECT_FALSE(stream->next(batch));
    EXPECT_ERROR(data->shuffled(0, 1, 1), "batch size must be at least 1, got 0");
  }
}

TEST(Dataset, AStreamSkipsWithoutReading) {
  const auto source = std::make_shared<NumberedBlocks>();
  const auto stream = streamed(source, 1)->in_order(100);
  stream->skip(9);
  Batch batch;
  ASSERT_TRUE(stream->next(batch));
  EXPECT_EQ(batch.label[0].item<int64_t>(), 900);
  EXPECT_LE(source->reads, 2);
}

TEST(Dataset, WhatGoesWrongInTheThreadIsThrownByNext) {
  const auto data = streamed(std::make_shared<NumberedBlocks>(4), 100);
  const auto stream = data->in_order(50);
  EXPECT_ERROR(order_of(*stream, 50), "block 4 is broken");
  {
    const auto left_early = data->in_order(50);
    Batch batch;
    left_early->next(batch);
  }
}

TEST(Dataset, RowsMustFitTogether) {
  auto rows = numbered(0, 5);
  rows.weight = torch::ones(4);
  EXPECT_ERROR(in_memory(rows), "x has 5 rows, but weight has shape [4]");
  EXPECT_ERROR(in_memory({}), "needs points x");
}

}  // namespace
}  // namespace diffeo::testing
