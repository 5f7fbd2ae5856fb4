#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "diffeo/data/genotypes.h"

namespace diffeo::apps {

/// The strength of evidence along the genome: -log10 p of each marker, chromosome after chromosome, with the Bonferroni
/// level of 5 % and, if it is above 0, the level of the false discovery rate.
void plot_manhattan(const std::string& file, const std::vector<Marker>& markers, const Tensor& p,
                    double false_discovery_level, const std::string& title);

/// p-values against those of as many independent tests of nothing, with the band that holds 95 % of each of them.
void plot_quantiles(const std::string& file, const Tensor& p, double inflation, const std::string& title);

}  // namespace diffeo::apps
