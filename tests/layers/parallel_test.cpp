#include "diffeo/layers/base/parallel.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace diffeo {
namespace {

class ParallelFor : public ::testing::Test {
 public:
  ParallelFor() { at::set_num_threads(2); }
  ~ParallelFor() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

TEST_F(ParallelFor, RunsOnThreadsAtOnce) {
  // Each part waits until the other has begun: one thread after the other would wait in vain.
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  std::atomic<int> met = 0;
  parallel_for(0, 2, 1, [&](int64_t, int64_t) {
    std::unique_lock lock(mutex);
    ++begun;
    changed.notify_all();
    if (changed.wait_for(lock, std::chrono::seconds(20), [&] { return begun == 2; })) ++met;
  });
  EXPECT_EQ(met, 2);
}

TEST_F(ParallelFor, CoversTheRangeOnce) {
  std::vector<std::atomic<int>> visits(1001);
  parallel_for(1, 1001, 7, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) ++visits[i];
  });
  EXPECT_EQ(visits[0], 0);
  for (size_t i = 1; i < visits.size(); ++i) ASSERT_EQ(visits[i], 1) << i;
}

TEST_F(ParallelFor, IsOnePartWithinAnother) {
  std::atomic<int> parts = 0;
  parallel_for(0, 2, 1, [&](int64_t, int64_t) { parallel_for(0, 100, 1, [&](int64_t, int64_t) { ++parts; }); });
  EXPECT_EQ(parts, 2);
}

TEST_F(ParallelFor, ThrowsWhatAPartThrows) {
  const auto fail = [](int64_t first, int64_t) {
    if (first > 0) throw std::runtime_error("of the second part");
  };
  EXPECT_THROW(parallel_for(0, 2, 1, fail), std::runtime_error);
}

}  // namespace
}  // namespace diffeo
