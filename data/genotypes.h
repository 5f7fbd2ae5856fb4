#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "diffeo/data/table.h"

namespace diffeo {

/// Where a marker lies on the genome.
struct Marker {
  std::string name, chromosome;  ///< chromosome empty where the file does not say
  int64_t position = 0;          ///< base pairs; 0 where the file does not say, or says something negative
};

/// Dosages of every individual at every marker.
struct Genotypes {
  Tensor dosages;  ///< (n, M), float32: copies of one allele, 0 to 2; NaN for a missing call
  std::vector<Marker> markers;
};

/// The rows of an object and of its siblings in the other stored splits, one after the other: `/train/x`, `/valid/x`,
/// `/test/x` for `x` or `/train/x`; `/x` alone where there are no splits. Missing values are NaN. Throws Error naming
/// file and object for one that is missing, and for siblings of other columns.
Table read_all_rows(const std::string& file, const std::string& object, const std::vector<std::string>& columns = {},
                    torch::Dtype dtype = torch::kFloat64);

/// Reads dosages from `object` (read_all_rows) divided by `scale`, with names from its columns, and `/chromosome` and
/// `/position` beside it or at the root where they are there. A scale of 0 takes the attribute `dosage_scale` of the
/// object or the file, else 1. Throws Error for dosages outside of [0, 2].
Genotypes read_genotypes(const std::string& file, const std::string& object, double scale = 0);

}  // namespace diffeo
