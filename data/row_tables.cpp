#include "diffeo/data/row_tables.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/isfinite.h>

#include <set>

#include "diffeo/data/table_columns.h"

namespace diffeo {
namespace {

constexpr int64_t block_bytes = int64_t{4} << 20;

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

bool all_named(const std::vector<std::string>& words, const std::vector<Column>& columns) {
  return std::all_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::any_of(columns.begin(), columns.end(), [&](const Column& column) { return column.name == word; });
  });
}

/// An option that names columns of x's table, a dataset beside it, or any object of the file.
std::optional<TableSource> find_source(const hdf5::Object& root, const TableReader& x, const std::string& option,
                                       const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto words = words_of(text);
  const TableSource columns_of_x{root.file(), x.object(), words};
  if (all_named(words, x.all_columns())) return columns_of_x;
  const auto folder = x.object().substr(0, x.object().rfind('/'));
  for (const auto& path : {text.starts_with("/") ? text : folder + "/" + text, "/" + text})
    if (root.has(path)) return TableSource{root.file(), path, {}};
  try {
    choose_columns(x.where(), x.all_columns(), words);  // by index or range
  } catch (const Error& error) {
    throw Error(c10::str(option, ": '", text, "' is no object of the file and no column: ", error.what()));
  }
  return columns_of_x;
}

}  // namespace

RowSources find_sources(const DataOptions& options) {
  const auto root = hdf5::open_file(options.file);
  RowSources sources{.x = {options.file, options.x, {}}, .context = {}, .weight = {}, .label = {}};
  if (options.x.empty())
    for (const auto* usual : {"/train/x", "/x"})
      if (sources.x.object.empty() && root.has(usual)) sources.x.object = usual;
  const TableReader x(sources.x);
  sources.x.object = x.object();
  sources.context = find_source(root, x, "context", options.context);
  sources.weight = find_source(root, x, "weight", options.weight);
  sources.label = find_source(root, x, "label", options.label);

  std::set<int64_t> used;
  for (const auto* other : {&sources.context, &sources.weight, &sources.label}) {
    if (!*other || (*other)->object != x.object()) continue;
    for (const auto index : choose_columns(x.where(), x.all_columns(), (*other)->columns)) used.insert(index);
  }
  const auto chosen = choose_columns(x.where(), x.all_columns(), options.columns);
  for (const auto index : chosen) {
    check(options.columns.empty() || !used.contains(index), "columns: '", x.all_columns()[index].name,
          "' is a context, weight or label too");
    if (!used.contains(index)) sources.x.columns.push_back(std::to_string(index));
  }
  check(!sources.x.columns.empty(), x.where(), ": no column is left for the points");
  if (sources.x.columns.size() == x.all_columns().size() && options.columns.empty()) sources.x.columns.clear();
  return sources;
}

RowTables::RowTables(const RowSources& sources, torch::Dtype dtype) : dtype_(dtype) {
  auto points = std::make_unique<TableReader>(sources.x);
  columns_ = points->columns();
  rows_ = points->rows();
  image_shape_ = points->image_shape();
  const auto width = static_cast<int64_t>(columns_.size());
  // One reader for all floating-point columns of one table, so that its chunks are unpacked once.
  auto together = sources.x;
  std::vector<Use> uses{{&Batch::x, 0, width}};
  const auto add = [&](const std::optional<TableSource>& source, Tensor Batch::*member) {
    if (!source) return;
    auto reader = std::make_unique<TableReader>(*source);
    const auto& columns = reader->columns();
    const auto columns_here = static_cast<int64_t>(columns.size());
    check(member != &Batch::weight || columns_here == 1, reader->where(), ": weights are one column, got ",
          columns_here);
    check(reader->rows() == rows_, reader->where(), ": has ", reader->rows(), " rows, but ", points->where(), " has ",
          rows_);
    if (member == &Batch::context) context_columns_ = columns;
    const bool whole =
        std::all_of(columns.begin(), columns.end(), [](const Column& column) { return column.discrete; });
    if (member == &Batch::label && whole) {
      tables_.push_back({std::move(reader), at::kLong, {{member, 0, columns_here}}});
    } else if (source->object == sources.x.object && !sources.x.columns.empty()) {
      const auto begin = static_cast<int64_t>(together.columns.size());
      for (const auto index : choose_columns(reader->where(), reader->all_columns(), source->columns))
        together.columns.push_back(std::to_string(index));
      uses.push_back({member, begin, columns_here});
    } else {
      tables_.push_back({std::move(reader), dtype, {{member, 0, columns_here}}});
    }
  };
  add(sources.context, &Batch::context);
  add(sources.weight, &Batch::weight);
  add(sources.label, &Batch::label);
  if (uses.size() > 1) points = std::make_unique<TableReader>(together);
  tables_.insert(tables_.begin(), Opened{std::move(points), dtype, std::move(uses)});

  int64_t chunk = 1;
  for (const auto& table : tables_) {
    row_bytes_ += static_cast<int64_t>(table.reader->columns().size() * at::elementSize(table.dtype));
    chunk = std::max(chunk, table.reader->chunk_rows());
  }
  block_rows_ = std::max<int64_t>(1, block_bytes / row_bytes_ / chunk) * chunk;
}

Batch RowTables::read(int64_t block) const {
  const auto begin = block * block_rows_, end = std::min(rows_, begin + block_rows_);
  Batch rows;
  for (const auto& table : tables_) {
    const auto values = table.reader->read(begin, end, table.dtype);
    for (const auto& use : table.uses) {
      auto part = use.width == values.size(1) ? values : values.narrow(1, use.first, use.width).contiguous();
      const bool flat = use.member == &Batch::weight || (use.member == &Batch::label && use.width == 1);
      rows.*use.member = flat ? part.squeeze(1) : part;
    }
  }
  return rows;
}

std::vector<int64_t> RowTables::missing_in(const Batch& rows, int64_t block, bool allow_missing) const {
  const auto begin = block * block_rows_;
  Tensor finite;
  for (const auto& table : tables_) {
    for (const auto& use : table.uses) {
      const auto& values = rows.*use.member;
      if (!values.is_floating_point()) continue;
      const auto here = at::isfinite(values.flatten(1 < values.dim() ? 1 : 0)).view({values.size(0), -1}).all(1);
      finite = finite.defined() ? finite.logical_and(here) : here;
    }
  }
  const bool sound = finite.all().item<bool>();
  if (!sound && !allow_missing)
    for (const auto& table : tables_) {
      const auto again = table.reader->read(begin, begin + finite.size(0), table.dtype);
      table.reader->check_finite(again, begin);
    }
  if (rows.weight.defined()) {
    const auto negative = (rows.weight < 0).nonzero();
    check(negative.size(0) == 0, where(), ": row ", begin + (negative.size(0) > 0 ? negative[0][0].item<int64_t>() : 0),
          ": its weight is negative");
  }
  if (sound) return {};
  const auto bad = finite.logical_not().nonzero().flatten();
  return {bad.data_ptr<int64_t>(), bad.data_ptr<int64_t>() + bad.numel()};
}

}  // namespace diffeo
