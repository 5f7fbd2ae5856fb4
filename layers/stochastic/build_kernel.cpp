#include "diffeo/layers/stochastic/build_kernel.h"

#include <map>

#include "diffeo/layers/stochastic/langevin.h"
#include "diffeo/layers/stochastic/metropolis.h"

namespace diffeo {
namespace {

using Build = KernelPtr (*)(const Json& spec, LogDensityPtr density, LogDensityPtr start);

template <class Made>
KernelPtr build(const Json& spec, LogDensityPtr density, LogDensityPtr start) {
  return std::make_shared<Made>(read<typename Made::Options>(spec), std::move(density), std::move(start));
}

/// Every kernel: by the registry alone they could not share a density.
const std::map<std::string, Build>& kernels() {
  static const std::map<std::string, Build> all{{"hmc", build<Hmc>},
                                                {"langevin", build<Langevin>},
                                                {"mala", build<Mala>},
                                                {"metropolis", build<Metropolis>},
                                                {"underdamped", build<Underdamped>}};
  return all;
}

}  // namespace

const std::vector<std::string>& kernel_names() {
  static const auto names = [] {
    std::vector<std::string> found;
    for (const auto& [name, build] : kernels()) found.push_back(name);
    return found;
  }();
  return names;
}

KernelPtr build_kernel(const Json& spec, LogDensityPtr density, LogDensityPtr start) {
  if (!spec.is_object() || !spec.contains("type") || !spec["type"].is_string())
    throw SpecError("", c10::str("expected an object with a \"type\" that names a kernel, got ", spec.dump()));
  const auto type = spec["type"].get<std::string>();
  check_choice("type", type, kernel_names());
  auto complete = spec;
  if (!complete.contains("density")) complete["density"] = nullptr;
  return kernels().at(type)(complete, std::move(density), std::move(start));
}

}  // namespace diffeo
