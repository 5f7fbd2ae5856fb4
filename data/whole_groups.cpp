#include "diffeo/data/whole_groups.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "diffeo/data/shuffle.h"
#include "diffeo/layers/base/error.h"

namespace diffeo {
namespace {

using Indices = std::vector<int64_t>;

Batch chosen(const Batch& rows, const Indices& indices) {
  const auto index = at::tensor(indices, at::kLong);
  const auto of = [&](const Tensor& tensor) { return tensor.defined() ? tensor.index_select(0, index) : tensor; };
  return {of(rows.x), of(rows.context), of(rows.weight), of(rows.label)};
}

class GivenBatches : public BatchStream {
 public:
  GivenBatches(Batch rows, std::vector<Indices> batches) : rows_(std::move(rows)), batches_(std::move(batches)) {}

  bool next(Batch& batch) override {
    if (position_ >= batches_.size()) return false;
    batch = chosen(rows_, batches_[position_++]);
    return true;
  }
  void skip(int64_t batches) override {
    check(batches >= 0, "cannot skip ", batches, " batches");
    position_ = std::min(batches_.size(), position_ + static_cast<size_t>(batches));
  }

 private:
  Batch rows_;
  std::vector<Indices> batches_;
  size_t position_ = 0;
};

class WholeGroups : public Dataset {
 public:
  explicit WholeGroups(Batch rows) : rows_(std::move(rows)), all_(in_memory(rows_)) {
    const auto& label = rows_.label;
    check(label.defined() && label.dim() == 1 && label.scalar_type() == at::kLong,
          "batches of whole groups: each row needs the number of its group as its label");
    std::map<int64_t, Indices> groups;
    const auto values = label.contiguous();
    for (int64_t row = 0; row < values.size(0); ++row) groups[values.data_ptr<int64_t>()[row]].push_back(row);
    for (auto& [group, members] : groups) groups_.push_back(std::move(members));
  }

  int64_t rows() const override { return all_->rows(); }

  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t seed, int64_t epoch) const override {
    check(batch_size > 0, "batch size must be at least 1, got ", batch_size);
    const auto count = static_cast<size_t>((rows() + batch_size - 1) / batch_size);
    check(groups_.size() >= count, "batches of whole groups: ", groups_.size(), " groups do not fill ", count,
          " batches of ", batch_size, " rows; ask for larger batches");
    std::vector<Indices> batches(count);
    auto order = shuffled_indices(static_cast<int64_t>(groups_.size()), {seed, static_cast<uint64_t>(epoch)});
    // Large groups first, each to the smallest batch so far: the order among equals stays drawn.
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return groups_[a].size() > groups_[b].size(); });
    for (const auto group : order) {
      auto& smallest = *std::min_element(batches.begin(), batches.end(),
                                         [](const Indices& a, const Indices& b) { return a.size() < b.size(); });
      smallest.insert(smallest.end(), groups_[group].begin(), groups_[group].end());
    }
    std::vector<Indices> mixed;
    for (const auto at : shuffled_indices(static_cast<int64_t>(count), {seed, static_cast<uint64_t>(epoch), 1}))
      mixed.push_back(std::move(batches[at]));
    return std::make_unique<GivenBatches>(rows_, std::move(mixed));
  }

  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override { return all_->in_order(batch_size); }

 private:
  Batch rows_;
  DatasetPtr all_;
  std::vector<Indices> groups_;
};

}  // namespace

DatasetPtr in_whole_groups(Batch rows) { return std::make_shared<WholeGroups>(std::move(rows)); }

}  // namespace diffeo
