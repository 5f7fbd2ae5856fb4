#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "diffeo/layers/base/registry.h"

namespace diffeo::testing {

/// One layer to be tested in one precision on one device.
struct Case {
  std::string name;
  Json spec;
  torch::Dtype dtype;
  torch::DeviceType device = torch::kCPU;
};
void PrintTo(const Case& c, std::ostream* out);

/// Every example of every layer, and every example of every map under every scheme that can use it; in both precisions,
/// and on the GPU too where there is one. Bijections only.
std::vector<Case> every_case();
/// The same of the layers onto fewer features.
std::vector<Case> injective_cases();
/// The same of the layers that draw random numbers.
std::vector<Case> random_cases();

/// The layer of a case with parameters away from their initial values.
LayerPtr build(const Case& c);

/// Random points (*batch, *event) well inside of a space.
Tensor points_in(const Space& space, std::vector<int64_t> batch, const torch::TensorOptions& options);

/// The one table of tolerances, by precision: absolute and relative.
double tolerance(torch::Dtype dtype);

}  // namespace diffeo::testing
