#include "diffeo/samplers/targets/plugin.h"

#include <dlfcn.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "diffeo/samplers/target_plugin.h"

namespace diffeo {

/// A library that is open, and the target that it made.
struct PluginTarget::Library {
  explicit Library(const Options& options) : path(options.library) {
    check(!path.empty(), "plugin: 'library' is empty; give the path of a shared library, e.g. ./libmine.so");
    check(std::filesystem::exists(path), path, ": there is no such file");
    // Without a slash the system would look in its own folders.
    handle = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
    check(handle != nullptr, path, ": is no shared library that can be loaded (", handle ? "" : dlerror(), ")");
    try {
      open(options);
    } catch (...) {
      shut();
      throw;
    }
  }
  ~Library() { shut(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  /// Values (rows) of x (rows, D), float64 on the CPU and contiguous, and the gradient where one is wanted.
  Sloped at(const Tensor& x, bool with_gradient) {
    const auto rows = x.size(0);
    Sloped values{torch::empty({rows}, x.options()), with_gradient ? torch::empty_like(x) : Tensor()};
    if (rows == 0) return values;
    int code = 0;
    {
      const std::lock_guard lock(one_at_a_time);
      code = target.log_density(x.const_data_ptr<double>(), rows, target.features, values.log_prob.data_ptr<double>(),
                                with_gradient ? values.gradient.data_ptr<double>() : nullptr, target.user);
    }
    check(code == 0, path, ": log_density failed with code ", code);
    // Points that are no numbers have no density that one could complain about.
    const auto sound = x.isfinite().all(1);
    const auto wrong = (values.log_prob.isnan() | (values.log_prob == INFINITY)) & sound;
    if (wrong.any().item<bool>()) complain("log density", values.log_prob, wrong, x);
    if (with_gradient) {
      const auto bad = values.gradient.isfinite().all(1).logical_not() & sound & values.log_prob.isfinite();
      if (bad.any().item<bool>()) complain("gradient", values.gradient, bad, x);
    }
    return values;
  }

  std::string path;
  diffeo_target target{};

 private:
  void open(const Options& options) {
    const auto function = reinterpret_cast<diffeo_target_open_function>(dlsym(handle, "diffeo_target_open"));
    check(function != nullptr, path, ": has no function diffeo_target_open (samplers/target_plugin.h)");
    const int code = function(options.options.c_str(), &target);
    opened = code == 0;
    check(opened, path, ": cannot make its target: ",
          target.error ? target.error : c10::str("diffeo_target_open failed with code ", code));
    check(target.version == DIFFEO_TARGET_PLUGIN_VERSION, path, ": was compiled against version ", target.version,
          " of target_plugin.h, this program has version ", DIFFEO_TARGET_PLUGIN_VERSION, "; compile it again");
    check(target.log_density != nullptr, path, ": gives no function log_density");
    check(target.features >= 1, path, ": says that its points have ", target.features, " features, expected 1 or more");
    check(options.features == 0 || options.features == target.features, path, ": its points have ", target.features,
          " features, but ", options.features, " are asked for");
  }

  void shut() {
    if (opened && target.version == DIFFEO_TARGET_PLUGIN_VERSION && target.close) target.close(target.user);
    opened = false;
    if (handle) dlclose(handle);
    handle = nullptr;
  }

  [[noreturn]] void complain(const char* what, const Tensor& values, const Tensor& bad, const Tensor& x) const {
    const auto row = bad.nonzero()[0].item<int64_t>();
    throw Error(c10::str(path, ": its ", what, " is not a number at ", x[row].unsqueeze(0), ": ",
                         values[row].reshape({1, -1})));
  }

  void* handle = nullptr;
  bool opened = false;
  std::mutex one_at_a_time;
};

namespace {

using Library = PluginTarget::Library;
using LibraryPtr = std::shared_ptr<Library>;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A library for as long as a graph needs it.
struct Held : torch::CustomClassHolder {
  explicit Held(LibraryPtr library) : library(std::move(library)) {}
  LibraryPtr library;
};

void keep(AutogradContext* context, const LibraryPtr& library, const Tensor& x) {
  context->save_for_backward({x});
  context->saved_data["library"] = c10::IValue::make_capsule(c10::make_intrusive<Held>(library));
}

LibraryPtr kept(AutogradContext* context) {
  const auto capsule = context->saved_data["library"].toCapsule();
  return static_cast<const Held&>(*capsule).library;
}

/// `library` at points (*batch, D) of any dtype and device.
Sloped values_at(Library& library, const Tensor& x, bool with_gradient) {
  const auto rows = x.detach().to(torch::kCPU, torch::kFloat64).reshape({-1, x.size(-1)}).contiguous();
  auto values = library.at(rows, with_gradient);
  values.log_prob = values.log_prob.reshape(x.sizes().slice(0, x.dim() - 1)).to(x.options());
  if (with_gradient) values.gradient = values.gradient.reshape(x.sizes()).to(x.options());
  return values;
}

/// The gradient at points; its own derivative by central differences.
struct GradientOfPlugin : torch::autograd::Function<GradientOfPlugin> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const LibraryPtr& library) {
    keep(context, library, x);
    return values_at(*library, x, true).gradient;
  }
  static variable_list backward(AutogradContext* context, variable_list by_gradient) {
    const auto library = kept(context);
    check(!at::GradMode::is_enabled(), "targets of shared libraries are differentiable twice, not three times");
    const auto x = context->get_saved_variables()[0].to(torch::kFloat64), v = by_gradient[0].to(torch::kFloat64);
    // A step of a hundred-thousandth along v, whatever its length: the Hessian is symmetric.
    const auto length = v.square().sum(-1, true).sqrt().clamp_min(1e-300);
    const auto step = 1e-5 * (1 + x.abs().amax(-1, true)) / length;
    const auto difference =
        values_at(*library, x + step * v, true).gradient - values_at(*library, x - step * v, true).gradient;
    return {(difference / (2 * step)).to(by_gradient[0].options()), Tensor()};
  }
};

/// The log density at points.
struct ValueOfPlugin : torch::autograd::Function<ValueOfPlugin> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const LibraryPtr& library) {
    keep(context, library, x);
    return values_at(*library, x, false).log_prob;
  }
  static variable_list backward(AutogradContext* context, variable_list by_value) {
    const auto x = context->get_saved_variables()[0];
    return {by_value[0].unsqueeze(-1) * GradientOfPlugin::apply(x, kept(context)), Tensor()};
  }
};

}  // namespace

PluginTarget::PluginTarget(const Options& options) : PluginTarget(options, std::make_shared<Library>(options)) {}

PluginTarget::PluginTarget(const Options& options, std::shared_ptr<Library> library)
    : Target(Space::reals(library->target.features)), options_(options), library_(std::move(library)) {}

std::string PluginTarget::name() const { return library_->target.name ? library_->target.name : options_.library; }

Tensor PluginTarget::evaluate(const Tensor& x) { return ValueOfPlugin::apply(x, library_); }

Sloped PluginTarget::evaluate_with_gradient(const Tensor& x) { return values_at(*library_, x, true); }

DIFFEO_TARGET(plugin, PluginTarget, "A target from a shared library of your own (samplers/target_plugin.h).",
              "log p = what the library says");

}  // namespace diffeo
