#include "diffeo/flows/model.h"

#include <c10/util/Exception.h>

#include <set>

namespace diffeo {
namespace {

void check_columns(const std::vector<Column>& columns, int64_t want, const std::string& path, const char* what) {
  check(columns.empty() || static_cast<int64_t>(columns.size()) == want, path, ": the flow has ", want, " ", what,
        ", but ", columns.size(), " columns were given");
}

/// The precision noted when a model was saved, for those without a floating-point tensor.
torch::Dtype noted_dtype(const ModelFile& model) {
  const auto noted = model.metadata.is_object() ? model.metadata.value("dtype", Json()) : Json();
  return noted == "float64" ? torch::kFloat64 : torch::kFloat32;
}

FlowPtr built(const Json& spec, const std::string& where) {
  try {
    return within(where + ":/spec", [&] { return build_flow(spec); });
  } catch (const c10::Error& error) {  // sizes that no memory holds
    throw Error(c10::str(where, ":/spec: the flow cannot be built: ", error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    throw Error(c10::str(where, ":/spec: the flow cannot be built: not enough memory"));
  }
}

}  // namespace

void save(const Flow& flow, const std::string& path, const std::vector<Column>& columns,
          const std::vector<Column>& context_columns) {
  check_columns(columns, flow.space().size(), path, "features");
  check_columns(context_columns, flow.context_size(), path, "context values");
  ModelFile model;
  model.spec = flow.spec();
  model.state = named_state(flow);
  model.columns = columns;
  model.context_columns = context_columns;
  model.metadata["dtype"] = flow.tensor_options().dtype() == torch::kFloat64 ? "float64" : "float32";
  write_model(path, model);
}

StoredState::StoredState(const ModelFile& file, std::string where)
    : where_(std::move(where)), left_(file.state.begin(), file.state.end()) {
  check(left_.size() == file.state.size(), where_, ":/state: holds two tensors of one name");
}

const Tensor& StoredState::find(const std::string& name, at::IntArrayRef sizes) const {
  const auto found = left_.find(name);
  check(found != left_.end(), where_, ":/state/", name, ": is missing; the spec asks for a tensor of shape ", sizes);
  return found->second;
}

void StoredState::check_fit(const std::string& name, at::IntArrayRef sizes, torch::Dtype dtype) const {
  const auto& value = find(name, sizes);
  check(value.sizes() == sizes, where_, ":/state/", name, ": expected a tensor of shape ", sizes, ", found one of ",
        value.sizes());
  check(value.scalar_type() == dtype, where_, ":/state/", name, ": expected values of ", dtype, ", found ",
        value.scalar_type());
}

void StoredState::take(torch::nn::Module& module, const std::string& prefix) {
  for (const auto& [name, tensor] : named_state(module)) {
    if (!tensor.is_floating_point()) continue;
    const auto dtype = find(prefix + name, tensor.sizes()).scalar_type();
    check(!at::isFloatingType(dtype) || dtype == torch::kFloat32 || dtype == torch::kFloat64, where_, ":/state/",
          prefix + name, ": holds values of ", dtype, "; diffeo computes in float32 or float64");
    if (at::isFloatingType(dtype)) module.to(dtype);
    break;
  }
  const auto state = named_state(module);
  for (const auto& [name, tensor] : state) check_fit(prefix + name, tensor.sizes(), tensor.scalar_type());
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : state) Tensor(tensor).copy_(left_.extract(prefix + name).mapped());
}

Tensor StoredState::take(const std::string& name, at::IntArrayRef sizes, torch::Dtype dtype) {
  check_fit(name, sizes, dtype);
  return left_.extract(name).mapped();
}

void StoredState::expect_all_taken() const {
  check(left_.empty(), where_, ":/state/", left_.empty() ? "" : left_.begin()->first,
        ": the spec has no tensor of this name");
}

FlowPtr load_flow(const std::string& path) { return flow_from(read_model(path), path); }

std::vector<std::string> libraries_in(const Json& spec) {
  std::vector<std::string> found;
  if (spec.is_object() && spec.value("type", Json()) == "plugin")
    found.push_back(spec.value("library", Json()).is_string() ? spec["library"].get<std::string>() : "");
  if (spec.is_structured())
    for (const auto& item : spec)
      for (const auto& library : libraries_in(item)) found.push_back(library);
  return found;
}

FlowPtr flow_from(const ModelFile& model, const std::string& where, Libraries libraries) {
  if (libraries == Libraries::refused)
    for (const auto& library : libraries_in(model.spec))
      throw Error(c10::str(where, ": this model moves at a density from the shared library '", library,
                           "', whose code would run; diffeo sample-target plugin:library=", library, " --flow ", where,
                           " says that it may"));
  const auto flow = built(model.spec, where);
  flow->to(noted_dtype(model));
  flow->eval();
  check_columns(model.columns, flow->space().size(), where, "features");
  check_columns(model.context_columns, flow->context_size(), where, "context values");
  StoredState state(model, where);
  state.take(*flow);
  state.expect_all_taken();
  return flow;
}

std::vector<int64_t> dequantized_columns(const ModelFile& model) {
  const auto names = model.metadata.value("dequantized", std::set<std::string>());
  std::vector<int64_t> columns;
  for (size_t i = 0; i < model.columns.size(); ++i)
    if (names.contains(model.columns[i].name)) columns.push_back(static_cast<int64_t>(i));
  return columns;
}

}  // namespace diffeo
