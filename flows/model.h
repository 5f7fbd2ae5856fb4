#pragma once

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

/// Reads the flow of a model file in the dtype it was saved in, on the CPU, in evaluation mode. Checks every name,
/// shape and type before anything is made of them. Throws Error naming file and object.
FlowPtr load_flow(const std::string& path);
/// The same from a file already read; `where` names it in errors.
FlowPtr flow_from(const ModelFile& model, const std::string& where, Libraries libraries = Libraries::refused);

}  // namespace diffeo
