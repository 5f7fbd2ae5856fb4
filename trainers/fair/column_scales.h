#pragma once

#include "diffeo/trainers/objective.h"

namespace diffeo {

/// How columns of mixed kinds are brought to the line, in units that encoders and densities can work with.
///
/// A value takes a place in [0, 1]: `range` by an affine map of the column's range; `quantile` by the distribution
/// function of the training rows. A column with ties (at most half as many values as rows) is dequantised: a value owns
/// an interval, of its smallest gap or its share of the rows, and a row a uniform point in it. Then
///
///   x = logit(alpha / 2 + (1 - alpha) place)
///
/// Values outside of the training range take the place of the nearest one. Both maps are the same for all groups, and
/// the value can be read off the point: total variation distances of the groups are those of the values. Constant
/// columns are left out.
class ColumnScales {
 public:
  struct Options {
    std::string scaling = "quantile";
    double alpha = 0.05;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("scaling", &O::scaling, "place of a value by its column's range, or by quantile"),
          optional("alpha", &O::alpha, "share of the unit interval that is kept free before the logit, in (0, 1)")};
    }
  };

  /// The scales of rows x (n, D). Throws SpecError for options out of range, Error if every column is constant.
  ColumnScales(const Tensor& x, const Options& options);
  /// From what spec() wrote. Throws SpecError for anything else.
  explicit ColumnScales(const Json& spec);
  Json spec() const;

  int64_t columns() const { return columns_; }                               ///< D, of the rows
  int64_t features() const { return static_cast<int64_t>(scales_.size()); }  ///< F, of the points
  std::vector<int64_t> left_out() const;                                     ///< constant columns

  /// Where values lie: (n, 2 F), first the beginnings of the intervals, then their widths; in the dtype of x (n, D).
  Tensor place(const Tensor& x) const;
  /// Points (n, F) of places (n, 2 F), with noise from torch's default generator.
  Tensor points(const Tensor& places) const;

 private:
  struct Scale {
    int64_t column = 0;
    bool discrete = false;
    std::vector<double> values, places, widths;  ///< of each value; of knots, without widths, if not discrete
  };

  Options options_;
  int64_t columns_ = 0;
  std::vector<Scale> scales_;
};

/// Another objective (its child `objective`) on points of rows given by their places, with new noise each time.
class PlacedRows : public Objective {
 public:
  PlacedRows(ObjectivePtr objective, const ColumnScales& scales)
      : objective_(register_module("objective", std::move(objective))), scales_(scales) {}
  Tensor loss(const Batch& batch) override;

 private:
  ObjectivePtr objective_;
  ColumnScales scales_;
};

}  // namespace diffeo
