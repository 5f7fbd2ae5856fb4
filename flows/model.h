#pragma once

#include <map>

#include "diffeo/data/model_file.h"
#include "diffeo/flows/flow.h"

namespace diffeo {

/// Writes a flow with the columns it was trained on. Throws Error naming the file.
void save(const Flow& flow, const std::string& path, const std::vector<Column>& columns = {},
          const std::vector<Column>& context_columns = {});

/// Whether a model may move at densities from shared libraries (the target `plugin`), whose code building it runs.
enum class Libraries { refused, allowed };

/// The shared libraries that a spec names, wherever in it.
std::vector<std::string> libraries_in(const Json& spec);

/// Numbers of the columns that training dequantised.
std::vector<int64_t> dequantized_columns(const ModelFile& model);

/// The tensors of a model file on their way into modules. Names, shapes and types are checked before anything is
/// copied; errors name file and tensor.
class StoredState {
 public:
  /// `where` names the file. Throws Error if two tensors have one name.
  StoredState(const ModelFile& file, std::string where);

  /// Copies the tensors whose names are those of the module's with `prefix` in front, moving the module to their
  /// precision, in which it computes. Throws Error for one that is missing or of another shape or type.
  void take(torch::nn::Module& module, const std::string& prefix = "");
  /// One tensor. Throws Error if it is missing or of another shape or type.
  Tensor take(const std::string& name, at::IntArrayRef sizes, torch::Dtype dtype);
  /// Throws Error that names a tensor that nothing has taken.
  void expect_all_taken() const;

 private:
  const Tensor& find(const std::string& name, at::IntArrayRef sizes) const;
  void check_fit(const std::string& name, at::IntArrayRef sizes, torch::Dtype dtype) const;

  std::string where_;
  std::map<std::string, Tensor> left_;
};

/// Reads the flow of a model file in the dtype it was saved in, on the CPU, in evaluation mode. Checks every name,
/// shape and type before anything is made of them. Throws Error naming file and object.
FlowPtr load_flow(const std::string& path);
/// The same from a file already read; `where` names it in errors.
FlowPtr flow_from(const ModelFile& model, const std::string& where, Libraries libraries = Libraries::refused);

}  // namespace diffeo
