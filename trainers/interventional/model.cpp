#include "diffeo/trainers/interventional/model.h"

#include <torch/types.h>

#include <cmath>

namespace diffeo {
namespace {

StudyShape shape_of(const InterventionalOptions& options) {
  return {.treatments = static_cast<int64_t>(options.treatments.size()),
          .covariate_shift = options.covariate_shift,
          .covariate_scale = options.covariate_scale,
          .outcome_shift = options.outcome_shift,
          .outcome_scale = options.outcome_scale};
}

/// An affine map of standardised outcomes and splines, autoregressive in both orders where there are several columns.
Json target_spec(const InterventionalOptions& options) {
  const auto outcomes = static_cast<int64_t>(options.outcome_shift.size());
  const Json spline = {{"type", "rq_spline"}, {"bins", options.target_bins}, {"bound", options.target_bound}};
  std::vector<Json> layers{{{"type", "standardize"},
                            {"features", outcomes},
                            {"shift", options.outcome_shift},
                            {"scale", options.outcome_scale}}};
  if (outcomes == 1) {
    layers.push_back({{"type", "elementwise"}, {"features", 1}, {"map", spline}});
  } else {
    for (const auto* order : {"natural", "reverse"})
      layers.push_back({{"type", "autoregressive"},
                        {"features", outcomes},
                        {"map", spline},
                        {"net", {{"width", 32}, {"depth", 1}, {"activation", "elu"}}},
                        {"order", order}});
  }
  layers.push_back({{"type", "elementwise"}, {"features", outcomes}, {"map", {{"type", "affine"}, {"scale", "exp"}}}});
  return {{"type", "flow"}, {"layers", layers}, {"base", {{"type", "normal"}, {"features", outcomes}}}};
}

void check_numbers(const char* name, const std::vector<double>& values, const std::vector<double>& like) {
  if (values.size() != like.size() || values.empty())
    throw SpecError(name, c10::str("expected ", std::max<size_t>(like.size(), 1), " numbers, got ", values.size()));
}

}  // namespace

InterventionalModel::InterventionalModel(const InterventionalOptions& options) : options_(options) {
  correction_named(options.correction);
  at_least(1, "rows", options.rows);
  at_least(1, "folds", options.folds);
  at_least(1, "target_bins", options.target_bins);
  at_least(2, "quadrature/grid", options.quadrature.grid);
  at_least(1, "quadrature/draws", options.quadrature.draws);
  if (!(options.quadrature.clip > 0 && options.quadrature.clip < 0.5))
    throw SpecError("quadrature/clip", c10::str("expected a number between 0 and 0.5, got ", options.quadrature.clip));
  if (options.treatments.size() < 2)
    throw SpecError("treatments", c10::str("expected at least two, got ", options.treatments.size()));
  check_numbers("covariate_scale", options.covariate_scale, options.covariate_shift);
  check_numbers("outcome_scale", options.outcome_scale, options.outcome_shift);
  if (options.outcome_shift.size() == 1 && options.grid.size() != 2)
    throw SpecError("grid", c10::str("expected two numbers, got ", options.grid.size()));
  if (!(options.target_bound > 0))
    throw SpecError("target_bound", c10::str("must be above 0, got ", options.target_bound));
  const auto shape = shape_of(options);
  for (int64_t k = 0; k < options.folds; ++k)
    nuisances_.push_back(
        register_module("nuisance_" + std::to_string(k), std::make_shared<Nuisance>(shape, options.nuisance)));
  for (size_t a = 0; a < options.treatments.size(); ++a)
    targets_.push_back(register_module("target_" + std::to_string(a), build_flow(target_spec(options))));
  fold_ = register_buffer("fold", torch::zeros({options.rows}, torch::kInt64));
  fingerprint_ = register_buffer("fingerprint", torch::zeros({1}, torch::kInt64));
}

InterventionalModelPtr InterventionalModel::for_study(const Study& study, const std::vector<int64_t>& treatments,
                                                      InterventionalOptions options, uint64_t seed) {
  const auto shape = diffeo::shape_of(study, static_cast<int64_t>(treatments.size()));
  options.treatments = treatments;
  options.covariate_shift = shape.covariate_shift;
  options.covariate_scale = shape.covariate_scale;
  options.outcome_shift = shape.outcome_shift;
  options.outcome_scale = shape.outcome_scale;
  options.rows = study.rows();
  if (options.target_bound == 0) {
    const auto standardised = (study.outcome.to(torch::kFloat64) -
                               torch::tensor(shape.outcome_shift, torch::kFloat64).to(study.outcome.device())) /
                              torch::tensor(shape.outcome_scale, torch::kFloat64).to(study.outcome.device());
    options.target_bound = std::max(3.0, standardised.abs().max().item<double>() + 0.5);
  }
  if (shape.outcomes() == 1) {
    const auto grid = outcome_grid(study.outcome.to(torch::kFloat64), 2);
    options.grid = {grid[0][0].item<double>(), grid[1][0].item<double>()};
  }
  const auto fold = assign_folds(study.treatment, shape.treatments, at_least(1, "folds", options.folds), seed);
  auto model = std::make_shared<InterventionalModel>(options);
  model->fold_.copy_(fold);
  model->fingerprint_.fill_(fingerprint(study));
  return model;
}

Tensor InterventionalModel::grid() const {
  if (outcomes() > 1) return {};
  return torch::linspace(options_.grid[0], options_.grid[1], options_.quadrature.grid, tensor_options()).unsqueeze(1);
}

int64_t InterventionalModel::place_of(int64_t treatment) const {
  const auto found = std::find(options_.treatments.begin(), options_.treatments.end(), treatment);
  check(found != options_.treatments.end(), "treatment ", treatment, " is unknown to the model; it has ",
        c10::Join(", ", options_.treatments));
  return found - options_.treatments.begin();
}

bool InterventionalModel::knows(const Study& study) const {
  return study.rows() == options_.rows && fingerprint(study) == fingerprint_.item<int64_t>();
}

Predictions InterventionalModel::predict(const Study& study) {
  check(study.covariates.size(1) == covariates(), "the model takes ", covariates(), " covariates, got ",
        study.covariates.size(1));
  const auto by = [&](int64_t k, const Tensor& covariates) {
    return diffeo::predict(*nuisances_[k], covariates, grid(), options_.quadrature);
  };
  Predictions all;
  if (options_.folds > 1 && knows(study)) {
    const auto set = [&](Tensor& into, const Tensor& index, const Tensor& part) {
      if (!part.defined()) return;
      auto sizes = part.sizes().vec();
      sizes[0] = study.rows();
      if (!into.defined()) into = torch::zeros(sizes, part.options());
      into.index_copy_(0, index, part);
    };
    for (int64_t k = 0; k < options_.folds; ++k) {
      const auto index = fold_.eq(k).nonzero().flatten();
      const auto part = by(k, study.covariates.index_select(0, index));
      set(all.propensity, index, part.propensity);
      set(all.probability, index, part.probability);
      if (part.shared_grid())
        all.points = part.points;
      else
        set(all.points, index, part.points);
    }
    return all;
  }
  all = by(0, study.covariates);
  for (int64_t k = 1; k < options_.folds; ++k) {
    const auto part = by(k, study.covariates);
    all.propensity = all.propensity + part.propensity;
    if (part.shared_grid())
      all.probability = all.probability + part.probability;
    else
      all.points = torch::cat({all.points, part.points}, 2);
  }
  const auto folds = static_cast<double>(options_.folds);
  all.propensity = all.propensity / folds;
  if (all.shared_grid()) all.probability = all.probability / folds;
  return all;
}

InterventionalModelPtr interventional_from(const ModelFile& file, const std::string& where) {
  check(file.spec.is_object() && file.spec.value("type", Json()) == "interventional", where,
        ": is no model of `diffeo intervene train`");
  const auto model = within(
      where + ":/spec", [&] { return std::make_shared<InterventionalModel>(read<InterventionalOptions>(file.spec)); });
  StoredState state(file, where);
  state.take(*model);
  state.expect_all_taken();
  model->eval();
  return model;
}

}  // namespace diffeo
