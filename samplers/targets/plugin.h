#pragma once

#include "diffeo/samplers/target.h"

namespace diffeo {

/// A target from a shared library that the user has made (samplers/target_plugin.h).
///
/// It computes in float64 on the CPU, whatever its points are. Second derivatives, which training through Langevin
/// steps asks for, are central differences of its gradient, good to about six digits.
///
/// The constructor runs code of the library. Throws Error naming the library for a missing file, no library, a missing
/// function, one compiled against another version, another dimension than asked for, and whatever the library itself
/// refuses; evaluations throw Error naming it where it fails or gives values that are no log densities.
class PluginTarget : public Target {
 public:
  struct Options {
    std::string library, options;
    int64_t features = 0;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{required("library", &O::library, "path of the shared library, e.g. ./libmine.so"),
                        optional("options", &O::options, "text for the library"),
                        optional("features", &O::features, "D as it is expected to be; 0: what the library says")};
    }
  };

  struct Library;

  explicit PluginTarget(const Options& options);
  std::string name() const override;
  Json spec() const override { return write("plugin", options_); }

 private:
  PluginTarget(const Options& options, std::shared_ptr<Library> library);
  Tensor evaluate(const Tensor& x) override;
  Sloped evaluate_with_gradient(const Tensor& x) override;

  Options options_;
  std::shared_ptr<Library> library_;
};

}  // namespace diffeo
