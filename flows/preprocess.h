#pragma once

#include "diffeo/data/splits.h"
#include "diffeo/layers/base/options.h"

namespace diffeo {

/// How columns are brought near to a standard normal before a flow sees them.
struct PreprocessOptions {
  std::string preprocess = "standardize";
  std::vector<std::string> transform;
  std::vector<std::string> dequantize;
  std::string preprocess_context = "standardize";
  double noise = 0;
  bool flip = false;
  static constexpr auto fields() {
    using O = PreprocessOptions;
    return std::tuple{
        optional(
            "preprocess", &O::preprocess,
            "standardize (mean and standard deviation), minmax (to [-1, 1]), robust (median and quartiles), isotropic "
            "(mean, and one scale for all columns: distances keep their meaning), shared (one mean and deviation for "
            "all columns, as images want it; their default), logit (of values of 8 bits) or none"),
        optional("preprocess_context", &O::preprocess_context,
                 "the same for the columns of the context: standardize, minmax, robust or none"),
        optional("transform", &O::transform,
                 "first bend single columns, e.g. energy=log,fraction=logit,percent=logit:0:100; all=... bends all"),
        optional("dequantize", &O::dequantize,
                 "add uniform noise in [0, 1) to these columns of integers; all: to those stored as integers; "
                 "variational: learn "
                 "the noise, of images of 8 bits"),
        optional("noise", &O::noise,
                 "add normal noise to the training points, with this standard deviation in units of each column's own"),
        optional("flip", &O::flip, "mirror each training image, left for right, with probability 1/2")};
  }
};

/// Transforms are said as COLUMN=log, COLUMN=log:LOWER, COLUMN=logit or COLUMN=logit:LOWER:UPPER, with the ends of the
/// column's values, which are 0 and 1 unless said otherwise; COLUMN `all` is every column that no item names. A column
/// that is dequantised gets a millionth of room at its ends, because noise may be rounded onto them.
///
/// Specs of the layers that stand in front of a flow of `columns`, nearest to the data first: what the flow learns is
/// then a density in the data's own units. Shift and scale are those of `train` after the transforms; a constant column
/// keeps its scale. Throws Error for unknown columns and transforms, and for values outside of a transform's domain.
std::vector<Json> preprocessing(const PreprocessOptions& options, const std::vector<Column>& columns,
                                const Dataset& train);

/// The same for the context of `train`, of so many columns: layers that it goes through first.
std::vector<Json> context_preprocessing(const PreprocessOptions& options, int64_t context, const Dataset& train);

/// Whether the noise is learned, by a layer of its own.
bool learns_noise(const PreprocessOptions& options);

/// Indices of the columns to dequantise by uniform noise, in order. Throws Error for unknown ones.
std::vector<int64_t> dequantized_columns(const PreprocessOptions& options, const std::vector<Column>& columns);

}  // namespace diffeo
