#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "diffeo/data/table.h"

namespace diffeo {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Everything in a model file. Reading one runs no code. JSON knows no infinities and no NaN: they are read back as
/// null.
struct ModelFile {
  static constexpr int64_t current_version = 1;

  int64_t version = current_version;
  Json spec;           ///< of the flow
  NamedTensors state;  ///< its parameters and buffers under their dotted names
  std::vector<Column> columns, context_columns;
  Json metadata = Json::object();  ///< free: where the data came from, options of the run, the program's version
  Json history = Json::array();    ///< one object for each evaluation in training
  Json training = nullptr;         ///< scalars needed to resume, null in a file that cannot be resumed
  NamedTensors training_state;     ///< tensors needed to resume: optimiser moments, averages, random state
};

/// Writes to a temporary file in the same folder, flushes it to disk and renames it: whatever happens, `path` is either
/// as it was or complete. Throws Error naming the file and the reason.
void write_model(const std::string& path, const ModelFile& model);

/// Throws Error naming file and object if it is no model file, is newer than this program, or its checksum is wrong.
ModelFile read_model(const std::string& path);

/// True if the file looks like a model file (an HDF5 file with the root attribute `diffeo_model`).
bool is_model_file(const std::string& path);

}  // namespace diffeo
