#include "diffeo/trainers/variational.h"

#include "diffeo/samplers/target.h"

namespace diffeo {
namespace {

/// The first place in a spec where an option has a value other than off, or an empty string.
std::string place_of(const Json& spec, const std::string& key, const std::string& place = {}) {
  if (!spec.is_structured()) return {};
  for (const auto& item : spec.items()) {
    const auto here = place.empty() ? item.key() : place + "/" + item.key();
    const auto& value = item.value();
    if (item.key() == key && (value == true || (value.is_number() && value != 0))) return here;
    if (item.key() == "type" && value == key) return place;
    if (auto found = place_of(value, key, here); !found.empty()) return found;
  }
  return {};
}

}  // namespace

void check_variational(const std::string& who, Flow& flow, const LogDensity& target, bool path) {
  check(flow.space().same_as(target.space()), who, ": the target lives on ", to_string(target.space()),
        " but the flow on ", to_string(flow.space()));
  check(flow.context_size() == 0, who, ": the flow takes a context of ", flow.context_size(),
        " values, but a target has none");
  const auto traits = flow.layers()->traits();
  check(!traits.random && !traits.injective && traits.exact_log_det, who,
        ": needs a flow of bijections with exact log-determinants");
  if (!path) return;
  const auto spec = flow.spec();
  for (const auto* key : {"batch_norm", "dropout"})
    if (const auto place = place_of(spec, key); !place.empty())
      throw Error(c10::str(who, ": estimator path: ", place, " of the flow has ", key,
                           ", with which a point has no density of its own in training; leave it out (actnorm "
                           "normalises without it), or take another estimator"));
}

void check_finite(const std::string& who, const std::string& what, const Tensor& x, const Sloped& density) {
  const auto batch = density.log_prob.dim();
  const auto log_prob = density.log_prob.flatten();
  const auto finite = log_prob.isfinite() & density.gradient.flatten(batch).isfinite().all(-1).flatten();
  if (finite.all().item<bool>()) return;
  const auto row = finite.logical_not().to(torch::kInt).argmax().item<int64_t>();
  const auto features = x.size(0) == 0 ? 0 : x.numel() / log_prob.numel();
  std::string point;
  for (int64_t i = 0; i < std::min<int64_t>(features, 4); ++i)
    point += c10::str(i == 0 ? "" : ", ", x.reshape({-1, features})[row][i].item<double>());
  throw Error(c10::str(who, ": ", log_prob[row].isfinite().item<bool>() ? "the gradient of the target" : "the target",
                       " is not finite at row ", row, " of ", what, ", (", point, features > 4 ? ", ..." : "", ")"));
}

Tensor with_gradient(const Tensor& value, const Tensor& points, const Tensor& by_points) {
  const auto surrogate = (points * by_points.detach()).sum();
  return value.detach() + (surrogate - surrogate.detach());
}

void follow(LogDensity& target, const Flow& flow) {
  const auto &there = flow.tensor_options(), &here = target.tensor_options();
  if (here.device() == there.device() && here.dtype() == there.dtype()) return;
  target.to(there.device(), c10::typeMetaToScalarType(there.dtype()));
}

LogDensityPtr target_in(const std::string& who, const Json& spec) {
  if (spec.is_null())
    throw SpecError("target", who +
                                  " needs a target, for example --target double_well:features=2 "
                                  "(diffeo inspect --targets lists them)");
  return within("target", [&] { return build_target(spec); });
}

}  // namespace diffeo
