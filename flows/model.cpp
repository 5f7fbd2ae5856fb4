#include "diffeo/flows/model.h"

#include <c10/util/Exception.h>

#include <map>
#include <set>

namespace diffeo {
namespace {

void check_columns(const std::vector<Column>& columns, int64_t want, const std::string& path, const char* what) {
  check(columns.empty() || static_cast<int64_t>(columns.size()) == want, path, ": the flow has ", want, " ", what,
        ", but ", columns.size(), " columns were given");
}

/// The precision of a model: that of its floating-point tensors, or, where it has none, as noted when it was saved.
torch::Dtype dtype_of(const ModelFile& model) {
  for (const auto& [name, tensor] : model.state)
    if (tensor.is_floating_point()) return tensor.scalar_type();
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

/// The tensor of the file for each tensor of the flow, in its order. Throws Error unless they fit one to one.
std::vector<Tensor> fitting(const ModelFile& model, const std::string& where, const torch::nn::Module& flow) {
  std::map<std::string, Tensor> stored(model.state.begin(), model.state.end());
  check(stored.size() == model.state.size(), where, ":/state: holds two tensors of one name");
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : named_state(flow)) {
    const auto place = where + ":/state/" + name;
    const auto found = stored.find(name);
    check(found != stored.end(), place, ": is missing; the spec asks for a tensor of shape ", tensor.sizes());
    const auto& value = found->second;
    check(value.sizes() == tensor.sizes(), place, ": expected a tensor of shape ", tensor.sizes(), ", found one of ",
          value.sizes());
    check(value.scalar_type() == tensor.scalar_type(), place, ": expected values of ", tensor.scalar_type(), ", found ",
          value.scalar_type());
    values.push_back(value);
    stored.erase(found);
  }
  check(stored.empty(), where, ":/state/", stored.empty() ? "" : stored.begin()->first,
        ": the flow of the spec has no tensor of this name");
  return values;
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
  const auto dtype = dtype_of(model);
  check(dtype == torch::kFloat32 || dtype == torch::kFloat64, where, ":/state: holds values of ", dtype,
        "; a flow computes in float32 or float64");
  const auto flow = built(model.spec, where);
  flow->to(dtype);
  flow->eval();
  check_columns(model.columns, flow->space().size(), where, "features");
  check_columns(model.context_columns, flow->context_size(), where, "context values");
  const auto values = fitting(model, where, *flow);
  torch::NoGradGuard no_grad;
  const auto state = named_state(*flow);
  for (size_t i = 0; i < state.size(); ++i) Tensor(state[i].second).copy_(values[i]);
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
