#include "trainers/rows.h"

#include <gtest/gtest.h>

#include <numbers>

#include "diffeo/layers/base/random.h"

namespace diffeo::testing {
namespace {

class Walk : public BatchStream {
 public:
  Walk(Batch rows, Tensor order, int64_t batch_size)
      : rows_(std::move(rows)), order_(std::move(order)), batch_size_(batch_size) {}
  bool next(Batch& batch) override {
    if (at_ >= order_.size(0)) return false;
    const auto chosen = order_.narrow(0, at_, std::min(batch_size_, order_.size(0) - at_));
    const auto pick = [&](const Tensor& all) { return all.defined() ? all.index_select(0, chosen) : all; };
    batch = {pick(rows_.x), pick(rows_.context), pick(rows_.weight), pick(rows_.label)};
    at_ += chosen.size(0);
    return true;
  }
  void skip(int64_t batches) override { at_ += batches * batch_size_; }

 private:
  Batch rows_;
  Tensor order_;
  int64_t batch_size_, at_ = 0;
};

}  // namespace

std::unique_ptr<BatchStream> Rows::shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const {
  const SeedGuard guard(seed * 1000003 + epoch);
  return std::make_unique<Walk>(rows_, torch::randperm(rows()), batch_size);
}

std::unique_ptr<BatchStream> Rows::in_order(int64_t batch_size) const {
  return std::make_unique<Walk>(rows_, torch::arange(rows()), batch_size);
}

Tensor moons(int64_t rows, uint64_t seed, const torch::TensorOptions& options) {
  const SeedGuard guard(seed);
  const auto angle = std::numbers::pi * torch::rand({rows}, options);
  const auto upper = (torch::arange(rows) % 2 == 0).to(options.dtype());
  const auto x = upper * angle.cos() + (1 - upper) * (1 - angle.cos());
  const auto y = upper * angle.sin() + (1 - upper) * (0.5 - angle.sin());
  return torch::stack({x, y}, -1) + 0.05 * torch::randn({rows, 2}, options);
}

FlowPtr small_flow(int64_t features, uint64_t seed, const Json& net, int64_t couplings) {
  const SeedGuard guard(seed);
  Json layers = Json::array();
  for (int64_t i = 0; i < couplings; ++i)
    layers.push_back({{"type", "coupling"},
                      {"features", features},
                      {"flip", i % 2 == 1},
                      {"net", net},
                      {"map", {{"type", "rq_spline"}, {"bins", 6}}}});
  return build_flow({{"layers", layers}, {"base", {{"type", "normal"}, {"features", features}}}});
}

::testing::AssertionResult same_bits(const NamedTensors& got, const NamedTensors& want) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << got.size() << " and " << want.size() << " tensors";
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i].first != want[i].first) return ::testing::AssertionFailure() << got[i].first << " and " << want[i].first;
    if (!got[i].second.equal(want[i].second))
      return ::testing::AssertionFailure()
             << got[i].first << ": largest difference " << (got[i].second - want[i].second).abs().max().item<double>();
  }
  return ::testing::AssertionSuccess();
}

namespace {

TEST(Rows, EveryRowComesOnceAndSkipFindsThePlace) {
  const Rows data({torch::arange(10).to(torch::kFloat32).unsqueeze(1)});
  const auto all = data.shuffled(4, 3, 1), rest = data.shuffled(4, 3, 1);
  rest->skip(1);
  std::vector<Tensor> seen;
  for (Batch batch, other; all->next(batch);) {
    if (!seen.empty()) {
      ASSERT_TRUE(rest->next(other));
      EXPECT_TRUE(other.x.equal(batch.x));
    }
    seen.push_back(batch.x);
  }
  EXPECT_TRUE(std::get<0>(torch::cat(seen).flatten().sort()).equal(torch::arange(10).to(torch::kFloat32)));
}

}  // namespace
}  // namespace diffeo::testing
