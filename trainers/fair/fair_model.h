#pragma once

#include <optional>

#include "diffeo/data/splits.h"
#include "diffeo/flows/model.h"
#include "diffeo/trainers/fair/audit.h"
#include "diffeo/trainers/fair/fair_fit.h"

namespace diffeo {

/// All that encodes rows and certifies the encoding: scales, densities and, for each trade-off gamma, encoders; or, by
/// the method `matching`, cells with their probabilities.
struct FairModel {
  std::string method = "flow";  ///< flow, or matching
  std::string criterion = "demographic_parity";
  int64_t groups = 2;
  std::vector<double> gammas;          ///< of those trained
  std::vector<DensityReport> reports;  ///< of the densities

  std::optional<ColumnScales> scales;  ///< of the flow
  GroupDensities densities;
  std::vector<FairFlowPtr> flows;  ///< for each gamma

  std::optional<Cells> cells;  ///< of the matching
  CellMatching matching;

  /// The place of a gamma in `gammas`. Throws Error that names those there are.
  size_t place_of(double gamma) const;
  /// The mean of the groups' distances between density and truth, for each label of the criterion: what the bound on
  /// the accuracy may be too low by, as far as a classifier can tell.
  std::vector<double> density_errors() const;
};

/// The rows of a dataset whose context is the group, with their labels, checked (check_fair_rows) unless it has none.
/// `data` may be null: no rows.
FairRows fair_rows(const Dataset* data, const std::string& criterion, int64_t groups, const std::string& where);

/// Points of rows of raw values under scales, with new noise, and cells of rows, on `device`.
FairRows points_of(const ColumnScales& scales, const FairRows& rows, torch::Device device = torch::kCPU);
FairRows cells_of(const Cells& cells, const FairRows& rows);
/// Where the values of rows lie under scales (ColumnScales::place), on `device`: what fit_fair trains on.
FairRows places_of(const ColumnScales& scales, const FairRows& rows, torch::Device device = torch::kCPU);

/// Fits the densities of the groups of a model that has scales, and reports on them. `rows` hold raw values; small
/// tables are repeated with new noise. Throws Error for a group, or a label of it that the criterion asks for, with
/// fewer than 10 rows.
void fit_densities(FairModel& model, const FairSplits& rows, const DensityOptions& options, uint64_t seed,
                   torch::Device device = torch::kCPU);
/// Fits the cells' probabilities of a model that has cells, reports on them, and matches the cells of the two groups.
void fit_matching(FairModel& model, const FairSplits& rows, int64_t steps, uint64_t seed);

/// What the model file holds of a model: spec and tensors. Columns, metadata and history are the caller's.
void put(const FairModel& model, ModelFile& file);
/// The model of a file, on the CPU, in evaluation mode. Throws Error naming file and object.
FairModel fair_model_from(const ModelFile& file, const std::string& where);

}  // namespace diffeo
