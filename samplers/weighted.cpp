#include "diffeo/samplers/weighted.h"

#include "diffeo/layers/base/error.h"

namespace diffeo {

Weighted draw_weighted(Flow& flow, LogDensity& target, int64_t count, int64_t batch_size) {
  check(count >= 0 && batch_size >= 1, "weighted samples: expected a count from 0 and a batch from 1, got ", count,
        " and ", batch_size);
  check(flow.space().same_as(target.space()), "weighted samples: the flow ends in ", to_string(flow.space()),
        " but the target lives on ", to_string(target.space()));
  torch::NoGradGuard no_grad;
  std::vector<Tensor> points, weights;
  for (int64_t begin = 0; begin == 0 || begin < count; begin += batch_size) {
    const auto drawn = flow.draw({std::min(batch_size, count - begin)});
    points.push_back(drawn.value);
    weights.push_back(target.log_prob(drawn.value) - drawn.log_prob);
  }
  return {torch::cat(points), torch::cat(weights)};
}

std::vector<std::shared_ptr<Kernel>> kernels_of(const Flow& flow) {
  std::vector<std::shared_ptr<Kernel>> found;
  for (const auto& module : flow.layers()->modules())
    if (auto kernel = std::dynamic_pointer_cast<Kernel>(module)) found.insert(found.begin(), kernel);
  return found;
}

}  // namespace diffeo
