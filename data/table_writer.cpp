#include <ATen/core/Tensor.h>

#include <optional>

#include "diffeo/data/durable_file.h"
#include "diffeo/data/hdf5.h"
#include "diffeo/data/table.h"

namespace diffeo {
namespace {

constexpr int64_t chunk_bytes = int64_t{512} << 10;  ///< fits into HDF5's cache of chunks, so that appending is cheap
constexpr size_t most_attribute_bytes = size_t{48} << 10;  ///< an object header of the portable format holds 64 KiB
constexpr int compression = 4;

/// Notes names or units: as an attribute, or beside the dataset where they are too many for one.
void note(hdf5::Object& root, hdf5::Object& dataset, const std::string& name, const std::vector<std::string>& texts) {
  // A string of variable length takes 16 bytes here; its text lies elsewhere.
  if (16 * texts.size() < most_attribute_bytes) {
    dataset.set_attribute(name, texts);
    return;
  }
  const auto beside = dataset.path().substr(0, dataset.path().rfind('/')) + "/" + name;
  if (!root.has(beside)) root.write_strings(beside, texts);
}

}  // namespace

struct TableWriter::State {
  explicit State(const std::string& path) : durable(path), file(durable.temporary(), path, 0, false) {}

  hdf5::Object& dataset() {
    check(current.has_value(), durable.path(), ": rows were appended before a dataset was begun");
    return *current;
  }

  DurableFile durable;
  hdf5::NewFile file;
  std::optional<hdf5::Object> current;
  torch::Dtype dtype = torch::kFloat32;
  int64_t width = 1, rows = 0;
  bool flat = false;
};

TableWriter::TableWriter(std::string file) : state_(std::make_unique<State>(file)) {}

TableWriter::~TableWriter() = default;

void TableWriter::begin(const std::string& object, const std::vector<Column>& columns, torch::Dtype dtype, bool flat) {
  auto& state = *state_;
  const auto path = object.starts_with("/") ? object : "/" + object;
  const auto width = static_cast<int64_t>(columns.size());
  check(width > 0, state.durable.path(), ":", path, ": a table needs a column");
  check(!flat || width == 1, state.durable.path(), ":", path, ": a flat dataset has one column, got ", width);
  const auto row_bytes = width * static_cast<int64_t>(at::elementSize(dtype));
  const auto chunk_rows = std::max<int64_t>(1, chunk_bytes / row_bytes);
  auto root = state.file.root();
  check(!root.has(path), state.durable.path(), ":", path, ": is written twice");
  state.current.emplace(root.make_dataset(path, dtype,
                                          {.shape = flat ? hdf5::Shape{0} : hdf5::Shape{0, width},
                                           .growing = true,
                                           .chunk = flat ? hdf5::Shape{chunk_rows} : hdf5::Shape{chunk_rows, width},
                                           .deflate = compression}));
  std::vector<std::string> names, units;
  for (const auto& column : columns) names.push_back(column.name), units.push_back(column.unit);
  note(root, *state.current, "columns", names);
  if (std::any_of(units.begin(), units.end(), [](const std::string& unit) { return !unit.empty(); }))
    note(root, *state.current, "units", units);
  state.dtype = dtype, state.width = width, state.rows = 0, state.flat = flat;
}

void TableWriter::append(const Tensor& rows) {
  auto& state = *state_;
  auto& dataset = state.dataset();
  check(state.flat ? rows.dim() == 1 : rows.dim() == 2 && rows.size(1) == state.width, dataset.where(),
        ": expected rows of shape (n", state.flat ? "" : c10::str(", ", state.width), "), got ", rows.sizes());
  check(at::isFloatingType(state.dtype) || !rows.is_floating_point(), dataset.where(), ": holds ", state.dtype,
        ", got rows of ", rows.scalar_type());
  if (rows.size(0) == 0) return;
  const auto values = rows.detach().to(torch::kCPU, state.dtype).contiguous();
  const auto added = values.size(0);
  dataset.extend(state.rows + added);
  dataset.write(state.dtype, state.flat ? hdf5::Shape{state.rows} : hdf5::Shape{state.rows, 0}, values.sizes().vec(),
                values.data_ptr());
  state.rows += added;
}

void TableWriter::attribute(const std::string& object, const std::string& name, const Json& value) {
  state_->file.root().open(object).set_attribute(name, value);
}

void TableWriter::finish() {
  state_->current.reset();
  state_->file.close();
  state_->durable.commit();
}

}  // namespace diffeo
