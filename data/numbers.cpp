#include "diffeo/data/numbers.h"

namespace diffeo {

std::vector<double> numbers(const torch::Tensor& values) {
  const auto flat = values.detach().to(torch::kCPU, torch::kFloat64).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

}  // namespace diffeo
