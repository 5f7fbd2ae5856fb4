#include "diffeo/layers/stochastic/build_kernel.h"

#include "diffeo/layers/stochastic/langevin.h"
#include "diffeo/layers/stochastic/metropolis.h"

namespace diffeo {
namespace {

template <class Made>
KernelPtr build(const Json& spec, LogDensityPtr density, LogDensityPtr start) {
  return std::make_shared<Made>(read<typename Made::Options>(spec), std::move(density), std::move(start));
}

}  // namespace

const std::vector<std::string>& kernel_names() {
  static const std::vector<std::string> names{"hmc", "langevin", "mala", "metropolis", "underdamped"};
  return names;
}

KernelPtr build_kernel(const Json& spec, LogDensityPtr density, LogDensityPtr start) {
  if (!spec.is_object() || !spec.contains("type") || !spec["type"].is_string())
    throw SpecError("", c10::str("expected an object with a \"type\" that names a kernel, got ", spec.dump()));
  const auto type = spec["type"].get<std::string>();
  check_choice("type", type, kernel_names());
  auto complete = spec;
  if (!complete.contains("density")) complete["density"] = nullptr;
  if (type == "hmc") return build<Hmc>(complete, std::move(density), std::move(start));
  if (type == "langevin") return build<Langevin>(complete, std::move(density), std::move(start));
  if (type == "mala") return build<Mala>(complete, std::move(density), std::move(start));
  if (type == "metropolis") return build<Metropolis>(complete, std::move(density), std::move(start));
  return build<Underdamped>(complete, std::move(density), std::move(start));
}

}  // namespace diffeo
