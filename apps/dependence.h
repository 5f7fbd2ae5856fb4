#pragma once

#include <optional>

#include "diffeo/data/splits.h"
#include "diffeo/trainers/dependent_likelihood.h"
#include "diffeo/trainers/fit.h"

namespace diffeo::apps {

/// What the user says of rows that depend on each other.
struct DependenceOptions {
  std::string groups, relatedness, relatedness_rows, dependence = "learn", batches = "rows";
  static constexpr auto fields() {
    using O = DependenceOptions;
    return std::tuple{
        optional("groups", &O::groups,
                 "object or column with the number of each row's group, whose rows are equally correlated"),
        optional("relatedness", &O::relatedness,
                 "FILE.h5:/OBJECT, how rows are related: a square matrix, or a factor of it, low and wide or sparse"),
        optional("relatedness_rows", &O::relatedness_rows,
                 "object or column with the place of each row in the relatedness; default: their order"),
        optional("dependence", &O::dependence,
                 "its strength, 0 to 0.99: fixed=0.3, grid (one flow for each of 13, the best on the validation rows "
                 "is kept), learn (with the flow) or turns (between steps of the flow)"),
        optional("batches", &O::batches, "of single rows, or of whole groups")};
  }
  bool wanted() const { return !groups.empty() || !relatedness.empty(); }
};

/// Throws Error for options that contradict each other or the data options, and asks for the rows' groups or places as
/// labels, so that they stay with their rows. Nothing happens where no dependence is wanted.
void ask_for_dependence(const DependenceOptions& options, DataOptions& data);

/// Rows to train on, and how they depend on each other.
class Dependence {
 public:
  /// Reads what the options name and turns the training rows of `splits` into rows that know their places. Throws Error
  /// for groups and matrices that do not fit the rows.
  Dependence(const DependenceOptions& options, const DataOptions& data, Splits& splits);

  /// A line for the user.
  std::string description() const;
  /// Whether the strength is still to be found by `search`.
  bool to_search() const { return to_search_; }
  /// Fits a flow of `spec` for each strength of a grid and settles for the one with the best validation loss. `told` is
  /// called for each.
  void search(const Json& spec, const torch::TensorOptions& own, const Splits& splits, const FitOptions& fit,
              const FitHooks& hooks, const std::function<void(double strength, double valid_loss)>& told);
  void settle(double strength);
  double strength() const { return how_.strength; }
  std::shared_ptr<DependentLikelihood> objective(const FlowPtr& flow) const;

 private:
  void read_groups(const Tensor& labels);
  void read_relatedness(const Tensor& labels, bool given);

  DependenceOptions options_;
  DependentLikelihood::Options how_;
  RowDependencePtr structure_;  ///< null where batches hold whole groups
  Batch rows_;
  std::string description_;
  bool to_search_ = false;
};

/// The dependence that the options ask for, none if they do not, with its strength settled: if it comes from a grid,
/// the one that an earlier session of this run noted in its metadata, or the best of a search with the user looking on,
/// which is noted in `metadata`. Throws Interrupted after a signal.
std::optional<Dependence> ready_dependence(const DependenceOptions& options, const DataOptions& data, Splits& splits,
                                           const Json& spec, const torch::TensorOptions& own, const FitOptions& fit,
                                           Json& metadata, const Json& earlier);

}  // namespace diffeo::apps
