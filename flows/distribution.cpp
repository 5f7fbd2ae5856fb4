#include "diffeo/flows/distribution.h"

namespace diffeo {

Distribution::Distribution(Space space, int64_t context_size) : space_(std::move(space)), context_size_(context_size) {}

Tensor Distribution::log_prob(const Tensor& x, const Tensor& context) {
  const auto who = [&] { return spec().value("type", std::string("distribution")); };
  if (!x.defined()) throw Error(c10::str(who(), ": expected points of shape ", to_string(space_), ", got none"));
  const auto batch = x.dim() - static_cast<int64_t>(space_.event.size());
  if (batch < 0 || x.sizes().slice(batch) != at::IntArrayRef(space_.event))
    throw Error(c10::str(who(), ": expected points of shape ", to_string(space_), ", got ", x.sizes()));
  const auto want = c10::typeMetaToScalarType(tensor_options().dtype());
  if (x.scalar_type() != want)
    throw Error(c10::str(who(), ": computes in ", want, ", got points of ", x.scalar_type(),
                         "; convert one of them with .to(dtype)"));
  if (x.device().type() != tensor_options().device().type())
    throw Error(c10::str(who(), ": is on ", tensor_options().device(), ", the points are on ", x.device(),
                         "; move one of them with .to(device)"));
  if (!context.defined() && context_size_ == 0) return evaluate(x, context);
  return evaluate(x, checked_context(who(), context, context_size_, x.sizes().slice(0, batch)));
}

Drawn Distribution::draw(at::IntArrayRef batch, const Tensor& context) {
  if (!context.defined() && context_size_ == 0) return simulate(batch, context);
  return simulate(batch,
                  checked_context(spec().value("type", std::string("distribution")), context, context_size_, batch));
}

Tensor Distribution::sample(int64_t n, const Tensor& context) {
  torch::NoGradGuard no_grad;
  if (!context.defined()) return draw({n}).value;
  check(context.dim() == 2, "sample: expected contexts of shape (M, ", context_size_, "), got ", context.sizes());
  return draw({context.size(0), n}, context.unsqueeze(1)).value;
}

Tensor Distribution::sample_paired(const Tensor& context) {
  torch::NoGradGuard no_grad;
  check(context.defined() && context.dim() == 2, "sample_paired: expected contexts of shape (M, ", context_size_, ")");
  return draw({context.size(0)}, context).value;
}

DistributionPtr build_distribution(const Json& spec) {
  return find_entry(all_distributions(), spec, "distribution").build(spec);
}

}  // namespace diffeo
