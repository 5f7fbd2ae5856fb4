#include "diffeo/trainers/fair/cells.h"

#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logit.h>
#include <ATen/ops/one_hot.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "diffeo/layers/base/random.h"
#include "diffeo/layers/nets/made.h"

namespace diffeo {
namespace {

constexpr int64_t cells_at_a_time = 16384;

/// The masked autoencoder of Germain et al. on vectors of zeros and ones.
class BinaryMade : public Objective {
 public:
  BinaryMade(int64_t features, const std::vector<double>& bias) {
    // The hidden units are shared out among the indicators: each needs several to see how the others hang together.
    const auto width = std::clamp<int64_t>(8 * features, 50, 512);
    net_ = register_module(
        "net", build_made({.width = width, .depth = 2}, {.degrees = feature_degrees("natural", features, 0)}, bias));
  }
  /// (n), nats, of vectors (n, features).
  Tensor log_prob(const Tensor& x) {
    return -at::binary_cross_entropy_with_logits(net_->forward(x), x, {}, {}, at::Reduction::None).sum(-1);
  }
  Tensor loss(const Batch& batch) override { return -weighted_mean(log_prob(batch.x), batch.weight); }

 private:
  MaskedNetPtr net_;
};

std::vector<double> cuts_of(const Tensor& column, int64_t categories) {
  const auto sorted = std::get<0>(column.to(torch::kCPU, torch::kDouble).sort());
  const auto distinct = std::get<0>(at::_unique2(sorted));
  std::vector<double> cuts;
  const auto between = [&](double left, double right) { return left + 0.5 * (right - left); };
  if (distinct.size(0) <= categories) {
    for (int64_t i = 1; i < distinct.size(0); ++i)
      cuts.push_back(between(distinct[i - 1].item<double>(), distinct[i].item<double>()));
    return cuts;
  }
  // A cut lies above the quartile's own value, so that ties stay together; equal quartiles make one cut.
  for (const int64_t quarter : {1, 2, 3}) {
    const auto at = sorted[quarter * (sorted.size(0) - 1) / 4].item<double>();
    const auto above = distinct.masked_select(distinct > at);
    if (above.size(0) == 0) continue;
    const double cut = between(at, above[0].item<double>());
    if (cuts.empty() || cut > cuts.back()) cuts.push_back(cut);
  }
  return cuts;
}

}  // namespace

Cells::Cells(const Tensor& x, const Options& options) {
  at_least(2, "categories", options.categories);
  at_least(1, "most_cells", options.most_cells);
  double count = 1;
  for (int64_t column = 0; column < x.size(1); ++column) {
    cuts_.push_back(cuts_of(x.select(1, column), options.categories));
    count *= static_cast<double>(cuts_.back().size() + 1);
  }
  check(count <= static_cast<double>(options.most_cells), "the columns have ", count,
        " combinations of values, more than most_cells = ", options.most_cells,
        "; choose fewer columns, or lower categories so that more of them are cut at quartiles");
}

Cells::Cells(const Json& spec) {
  try {
    cuts_ = spec.get<std::vector<std::vector<double>>>();
  } catch (const Json::exception& error) {
    throw SpecError("cells", error.what());
  }
  for (const auto& cuts : cuts_)
    if (!std::is_sorted(cuts.begin(), cuts.end())) throw SpecError("cells", "the cuts of a column are not sorted");
  if (cuts_.empty()) throw SpecError("cells", "there are no columns");
}

Json Cells::spec() const { return cuts_; }

int64_t Cells::count() const {
  int64_t count = 1;
  for (const auto& cuts : cuts_) count *= static_cast<int64_t>(cuts.size() + 1);
  return count;
}

int64_t Cells::indicators() const {
  int64_t count = 0;
  for (const auto& cuts : cuts_) count += static_cast<int64_t>(cuts.size() + 1);
  return count;
}

Tensor Cells::cell_of(const Tensor& x) const {
  check(x.dim() == 2 && x.size(1) == columns(), "cells: expected rows of ", columns(), " columns, got ", x.sizes());
  const auto rows = x.to(torch::kCPU, torch::kDouble);
  auto cell = at::zeros({x.size(0)}, torch::kLong);
  for (int64_t column = 0; column < columns(); ++column) {
    const auto& cuts = cuts_[column];
    cell.mul_(static_cast<int64_t>(cuts.size() + 1));
    if (!cuts.empty()) cell.add_(at::searchsorted(at::tensor(cuts, at::kDouble), rows.select(1, column).contiguous()));
  }
  return cell;
}

Tensor Cells::one_hot(const Tensor& cells) const {
  std::vector<Tensor> parts;
  auto rest = cells;
  for (int64_t column = columns() - 1; column >= 0; --column) {
    const auto values = static_cast<int64_t>(cuts_[column].size() + 1);
    parts.push_back(at::one_hot(rest.remainder(values), values).to(torch::kFloat32));
    rest = rest.div(values, "floor");
  }
  std::reverse(parts.begin(), parts.end());
  return at::cat(parts, 1);
}

Tensor fit_cell_probabilities(const Cells& cells, const Tensor& train, const Tensor& valid, int64_t steps,
                              uint64_t seed) {
  const SeedGuard guard(seed);
  const auto x = cells.one_hot(train);
  // The network begins with the shares of the single values.
  const auto shares = ((x.sum(0) + 0.5) / (static_cast<double>(x.size(0)) + 1.0)).to(torch::kDouble).contiguous();
  const auto logits = at::logit(shares);
  BinaryMade made(x.size(1), {logits.data_ptr<double>(), logits.data_ptr<double>() + logits.numel()});
  const auto learn = in_memory({.x = x});
  const auto choose = valid.defined() && valid.size(0) > 0 ? in_memory({.x = cells.one_hot(valid)}) : nullptr;
  fit(made, *learn, choose.get(),
      {.batch_size = 256,
       .steps = steps,
       .learning_rate = 3e-3,
       .weight_decay = 1e-4,
       .evaluate_every = std::max<int64_t>(1, steps / 20),
       .checkpoint_seconds = 1e9,
       .seed = seed});
  made.eval();
  const at::NoGradGuard no_grad;
  std::vector<Tensor> parts;
  for (int64_t begin = 0; begin < cells.count(); begin += cells_at_a_time)
    parts.push_back(
        made.log_prob(cells.one_hot(at::arange(begin, std::min(begin + cells_at_a_time, cells.count()), torch::kLong)))
            .to(torch::kDouble));
  return at::log_softmax(at::cat(parts), 0).exp();
}

CellMatching::CellMatching(const Tensor& p0_, const Tensor& p1_, const Tensor& predicted)
    : p0(p0_.to(torch::kDouble)), p1(p1_.to(torch::kDouble)) {
  check(p0.dim() == 1 && p1.sizes() == p0.sizes() && predicted.sizes() == p0.sizes(),
        "matching: expected probabilities and predicted labels (M) of the cells, got ", p0.sizes(), ", ", p1.sizes(),
        " and ", predicted.sizes());
  const auto matched = [&](const Tensor& among, Tensor& map) {
    const auto from = among.index_select(0, p0.index_select(0, among).argsort(true, 0, false));
    const auto to = among.index_select(0, p1.index_select(0, among).argsort(true, 0, false));
    map.index_copy_(0, from, to);
  };
  const auto all = at::arange(p0.size(0), torch::kLong);
  keep = at::empty_like(all), mix = at::empty_like(all);
  matched(all, mix);
  for (const int64_t label : {0, 1}) matched((predicted == label).nonzero().flatten(), keep);
}

Tensor CellMatching::latent(double gamma) const {
  const auto moved = at::zeros_like(p0).index_add(0, keep, (1 - gamma) * p0).index_add(0, mix, gamma * p0);
  return at::stack({moved, p1});
}

Tensor CellMatching::encode(const Tensor& cells, const Tensor& group, double gamma) const {
  const auto mixed = at::rand({cells.size(0)}, torch::kDouble) < gamma;
  const auto moved = at::where(mixed, mix.index_select(0, cells), keep.index_select(0, cells));
  return at::where(group == 0, moved, cells);
}

}  // namespace diffeo
