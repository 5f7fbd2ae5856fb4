#include "diffeo/samplers/annealed.h"

#include "diffeo/layers/sequential/sequential.h"
#include "diffeo/samplers/distribution_density.h"
#include "diffeo/samplers/target.h"

namespace diffeo {
namespace {

std::vector<double> schedule_of(const Annealing& how) {
  auto schedule = how.schedule;
  if (schedule.empty()) {
    at_least(1, "blocks", how.blocks);
    for (int64_t i = 1; i <= how.blocks; ++i)
      schedule.push_back(static_cast<double>(i) / static_cast<double>(how.blocks));
  }
  double before = 0;
  for (size_t i = 0; i < schedule.size(); ++i) {
    if (!(schedule[i] >= before && schedule[i] <= 1))
      throw SpecError(c10::str("schedule/", i),
                      c10::str("must grow from 0 to 1, got ", schedule[i], " after ", before));
    before = schedule[i];
  }
  if (schedule.back() != 1) throw SpecError("schedule", c10::str("must end at 1, ends at ", schedule.back()));
  return schedule;
}

}  // namespace

FlowPtr annealing_flow(LogDensityPtr target, DistributionPtr base, const Annealing& how) {
  check(target->space().same_as(base->space()), "annealing: the base lives on ", to_string(base->space()),
        ", the target on ", to_string(target->space()));
  const auto schedule = schedule_of(how);
  const auto start = std::make_shared<DistributionDensity>(base);
  auto spec = how.kernel;
  for (const char* key : {"density", "start", "lambda"})
    if (spec.contains(key)) throw SpecError(c10::str("kernel/", key), "is chosen by the annealing");
  spec["density"] = nullptr;
  if (const auto named = std::dynamic_pointer_cast<Target>(target)) spec["density"] = named->spec();
  spec["start"] = base->spec();
  std::vector<LayerPtr> layers;
  for (const double lambda : schedule) {
    spec["lambda"] = lambda;
    layers.insert(layers.begin(), within("kernel", [&] { return build_kernel(spec, target, start); }));
  }
  return std::make_shared<Flow>(std::make_shared<Sequential>(std::move(layers)), std::move(base));
}

Weighted annealed_importance_sampling(LogDensityPtr target, DistributionPtr base, int64_t count, const Annealing& how) {
  const auto flow = annealing_flow(target, std::move(base), how);
  flow->eval();
  return draw_weighted(*flow, *target, count);
}

}  // namespace diffeo
