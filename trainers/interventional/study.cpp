#include "diffeo/trainers/interventional/study.h"

#include <torch/types.h>

#include "diffeo/layers/base/error.h"
#include "diffeo/layers/base/random.h"

namespace diffeo {

Study Study::select(const Tensor& index) const {
  return {covariates.index_select(0, index), treatment.index_select(0, index), outcome.index_select(0, index)};
}

void check_study(const Study& study, int64_t treatments) {
  check(study.covariates.dim() == 2 && study.outcome.dim() == 2 && study.treatment.dim() == 1,
        "study: expected covariates (N, C), treatment (N) and outcome (N, D), got ", study.covariates.sizes(), ", ",
        study.treatment.sizes(), " and ", study.outcome.sizes());
  const auto rows = study.covariates.size(0);
  check(study.treatment.size(0) == rows, "study: there are ", rows, " rows of covariates but ", study.treatment.size(0),
        " of the treatment");
  check(study.outcome.size(0) == rows, "study: there are ", rows, " rows of covariates but ", study.outcome.size(0),
        " of the outcome");
  check(rows > 0 && study.covariates.size(1) > 0 && study.outcome.size(1) > 0,
        "study: needs at least one row, one covariate and one outcome");
  check(study.treatment.scalar_type() == torch::kInt64, "study: the treatment must be int64, got ",
        study.treatment.scalar_type());
  check(study.covariates.scalar_type() == study.outcome.scalar_type(), "study: covariates are ",
        study.covariates.scalar_type(), " but outcomes ", study.outcome.scalar_type());
  const auto least = study.treatment.min().item<int64_t>(), most = study.treatment.max().item<int64_t>();
  check(least >= 0 && most < treatments, "study: expected places of treatments from 0 to ", treatments - 1,
        ", got values from ", least, " to ", most);
}

int64_t fingerprint(const Study& study) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const auto& part : {study.covariates, study.treatment.unsqueeze(1), study.outcome}) {
    const auto values = part.detach().to(torch::kCPU, torch::kFloat64).contiguous();
    const auto* words = reinterpret_cast<const unsigned char*>(values.data_ptr<double>());
    for (int64_t i = 0; i < values.numel() * 8; ++i) hash = (hash ^ words[i]) * 0x100000001b3;
  }
  return static_cast<int64_t>(hash);
}

Tensor assign_folds(const Tensor& treatment, int64_t treatments, int64_t folds, uint64_t seed) {
  check(folds >= 1, "folds: must be at least 1, got ", folds);
  const SeedGuard guard(seed);
  const auto on_cpu = treatment.cpu();
  auto fold = torch::zeros({on_cpu.size(0)}, torch::kInt64);
  for (int64_t a = 0; a < treatments; ++a) {
    const auto rows = on_cpu.eq(a).nonzero().flatten();
    check(rows.numel() >= 2 * folds, "treatment ", a, " of ", treatments, " was given in ", rows.numel(), " rows; ",
          folds, " folds need at least ", 2 * folds);
    const auto shuffled = rows.index_select(0, torch::randperm(rows.numel(), torch::kInt64));
    fold.index_copy_(0, shuffled, torch::arange(rows.numel(), torch::kInt64).remainder(folds));
  }
  return fold.to(treatment.device());
}

}  // namespace diffeo
