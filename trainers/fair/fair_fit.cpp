#include "diffeo/trainers/fair/fair_fit.h"

#include <ATen/ops/bincount.h>

#include <cmath>
#include <limits>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

DatasetPtr dataset(const FairRows& rows) {
  if (rows.size() == 0) return nullptr;
  Batch batch;
  batch.x = rows.x;
  batch.context = rows.group.unsqueeze(1);
  batch.label = rows.label;
  return in_memory(batch);
}

/// The first value that is not one of 0, 1, 2, ...; NaN if there is none.
double first_fraction(const Tensor& values) {
  const auto numbers = values.to(torch::kDouble);
  const auto wrong = numbers.masked_select((numbers != numbers.round()).logical_or(numbers < 0));
  return wrong.size(0) > 0 ? wrong[0].item<double>() : std::nan("");
}

}  // namespace

int64_t check_fair_rows(const Tensor& group, const Tensor& label, const std::vector<int64_t>& labels,
                        const std::string& where) {
  check(group.dim() == 1 && label.dim() == 1 && group.size(0) == label.size(0) && group.size(0) > 0, where,
        ": expected a group and a label for each row, got shapes ", group.sizes(), " and ", label.sizes());
  const double bad_group = first_fraction(group);
  check(std::isnan(bad_group), where, ": groups are numbered 0, 1, 2, ..., but a row has ", bad_group);
  const auto other = label.masked_select((label != 0).logical_and(label != 1)).to(torch::kDouble);
  check(other.size(0) == 0, where, ": labels must be 0 or 1, but a row has ",
        other.size(0) > 0 ? other[0].item<double>() : 0);
  const auto groups = group.max().item<double>() + 1;
  check(groups >= 2, where, ": there is one group only; the sensitive attribute must take two values or more");
  check(groups <= 64, where, ": the sensitive attribute takes values up to ", groups - 1,
        "; more than 64 groups are not supported");
  const auto count = static_cast<int64_t>(groups);
  for (int64_t a = 0; a < count; ++a) {
    const auto own = group == a;
    check(own.any().item<bool>(), where, ": group ", a, " of 0 to ", count - 1, " has no rows");
    for (const auto y : labels)
      check(y < 0 || own.logical_and(label == y).any().item<bool>(), where, ": group ", a, " has no rows of label ", y);
  }
  return count;
}

FairFit fit_fair(const FairRows& train, const FairRows& valid, const GroupDensities& densities,
                 const FairTraining& training, const std::optional<ColumnScales>& scales, const FitHooks& hooks,
                 const RestartHook& before_restart) {
  if (training.restarts < 1) throw SpecError("restarts", c10::str("must be at least 1, got ", training.restarts));
  const auto groups = check_fair_rows(train.group, train.label, {-1}, "training rows");
  check(groups == training.model.groups, "training rows: the model is for ", training.model.groups,
        " groups, but the rows have ", groups);
  const auto shares = at::bincount(train.group).to(torch::kDouble) / static_cast<double>(train.size());
  const auto learn = dataset(train), choose = dataset(valid);
  FairFit best;
  best.objective = std::numeric_limits<double>::infinity();
  for (int64_t restart = 0; restart < training.restarts; ++restart) {
    if (restart > 0 && hooks.stop && hooks.stop()) break;
    if (before_restart) before_restart(restart);
    auto how = training.fit;
    how.seed = training.fit.seed + static_cast<uint64_t>(restart);
    const SeedGuard seed(how.seed, train.x.device());
    const auto model = std::make_shared<FairFlow>(training.model);
    model->to(train.x.device(), train.x.scalar_type());
    const auto inner = std::make_shared<FairObjective>(model, densities, shares, training.objective);
    const ObjectivePtr objective =
        scales ? ObjectivePtr(std::make_shared<PlacedRows>(inner, *scales)) : ObjectivePtr(inner);
    objective->to(train.x.device(), train.x.scalar_type());
    auto report = fit(*objective, *learn, choose.get(), how, hooks);
    const double value = choose ? report.best_valid_loss : report.train_loss;
    best.objectives.push_back(value);
    if (!best.model || value < best.objective) {
      model->eval();
      best.model = model, best.objective = value, best.report = std::move(report);
    }
  }
  return best;
}

}  // namespace diffeo
