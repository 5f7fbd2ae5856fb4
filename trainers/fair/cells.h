#pragma once

#include "diffeo/trainers/fair/densities.h"

namespace diffeo {

/// All combinations of the values of some columns, numbered: the first column varies slowest.
///
/// A column of at most `categories` values keeps them, a longer one is cut at its quartiles.
class Cells {
 public:
  struct Options {
    int64_t categories = 16;
    int64_t most_cells = 1000000;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("categories", &O::categories, "a column with more values than this is cut at its quartiles"),
          optional("most_cells", &O::most_cells, "refuse columns with more combinations of values than this")};
    }
  };

  /// The cells of rows x (n, D). Throws Error if there are more than `most_cells`.
  Cells(const Tensor& x, const Options& options);
  explicit Cells(const Json& spec);  ///< from what spec() wrote; throws SpecError for anything else
  Json spec() const;

  int64_t columns() const { return static_cast<int64_t>(cuts_.size()); }
  int64_t count() const;       ///< M
  int64_t indicators() const;  ///< of a row: one for each value of each column
  /// The cell of each row of x (n, D): (n), int64. A value that no training row had takes the nearest one's place.
  Tensor cell_of(const Tensor& x) const;
  /// One-hot vectors (n, indicators), float32, of cells (n).
  Tensor one_hot(const Tensor& cells) const;

 private:
  std::vector<std::vector<double>> cuts_;  ///< of each column, between neighbouring values
};

/// Probabilities (M) in float64, of sum 1, of all cells from cells (n) of rows.
///
/// A masked autoencoder learns the one-hot vectors by binary cross-entropy; it is evaluated on the M cells and, since
/// it may give some probability to vectors that are no cell's, normalised over them.
Tensor fit_cell_probabilities(const Cells& cells, const Tensor& train, const Tensor& valid, int64_t steps,
                              uint64_t seed);

/// The categorical variant of fair normalizing flows: group 1 is encoded by the identity, a row of group 0 by one of
/// two permutations of the cells, the second with probability gamma.
///
///   keep    within the cells of the same predicted label, the k-th least likely cell of group 0 to that of group 1
///   mix     the same over all cells: of all permutations the one with the least total variation distance
///
/// Balunovic, Ruoss and Vechev, "Fair normalizing flows", 2022, https://arxiv.org/abs/2106.05937, section 5.
struct CellMatching {
  Tensor p0, p1;     ///< (M), probabilities of the groups' cells
  Tensor keep, mix;  ///< (M), int64

  /// `predicted` (M): the label that a model predicts for a cell.
  CellMatching(const Tensor& p0, const Tensor& p1, const Tensor& predicted);
  CellMatching() = default;

  /// Probabilities (2, M) of the representations.
  Tensor latent(double gamma) const;
  /// Representations (n) of cells (n) with their groups (n). Randomness comes from torch's default generator.
  Tensor encode(const Tensor& cells, const Tensor& group, double gamma) const;
};

}  // namespace diffeo
