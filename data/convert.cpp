#include "diffeo/data/convert.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>

#include "diffeo/data/csv.h"
#include "diffeo/data/numpy.h"
#include "diffeo/data/table_columns.h"
#include "diffeo/data/table_reader.h"

namespace diffeo {
namespace {

constexpr int64_t block_values = 1 << 20;  ///< numbers that are handled at once

enum class Format { hdf5, text, npy, npz };

Format format_of(const std::string& path) {
  auto ending = std::filesystem::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto one_of = [&](std::initializer_list<const char*> endings) {
    return std::find(endings.begin(), endings.end(), ending) != endings.end();
  };
  if (one_of({".h5", ".hdf5", ".hdf", ".he5", ".nxs", ".h5ad"})) return Format::hdf5;
  if (one_of({".csv", ".tsv", ".txt", ".dat", ".data"})) return Format::text;
  if (ending == ".npy") return Format::npy;
  if (ending == ".npz") return Format::npz;
  throw Error(c10::str(path, ": what the ending '", ending,
                       "' means is not known; known are .h5, .hdf5, .csv, .tsv, .txt, .dat, .npy and .npz"));
}

CsvOptions text_options(const ConvertOptions& options) {
  return {.separator = options.separator,
          .header = options.header,
          .missing = options.missing,
          .categorical = options.categorical,
          .columns = options.columns};
}

int64_t rows_at_once(int64_t width) { return std::max<int64_t>(1, block_values / std::max<int64_t>(1, width)); }

void write_array(TableWriter& writer, const std::string& object, NumpyArray array,
                 const std::vector<std::string>& wanted, const std::string& where) {
  const auto& shape = array.shape();
  int64_t width = 1;
  for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
  check(width > 0, where, ": has rows without numbers");
  std::vector<Column> columns(width);
  for (int64_t i = 0; i < width; ++i) columns[i].name = shape.size() == 1 ? last_part(object) : c10::str("x", i);
  const auto chosen = choose_columns(where, columns, wanted);
  std::vector<Column> kept;
  for (const auto index : chosen) kept.push_back(columns[index]);
  const bool flat = shape.size() == 1;
  writer.begin(object, kept, array.dtype(), flat);
  const auto step = rows_at_once(width);
  for (int64_t begin = 0; begin < shape[0]; begin += step) {
    const auto rows = array.read(begin, std::min(shape[0], begin + step));
    if (flat)
      writer.append(rows);
    else if (wanted.empty())
      writer.append(rows.reshape({rows.size(0), width}));
    else
      writer.append(rows.reshape({rows.size(0), width}).index_select(1, at::tensor(chosen)));
  }
  if (shape.size() > 2 && wanted.empty())
    writer.attribute(object, "event_shape",
                     c10::str("[", c10::Join(", ", std::vector<int64_t>(shape.begin() + 1, shape.end())), "]"));
}

void write_npy(const TableReader& reader, const std::string& path) {
  const auto& columns = reader.columns();
  const auto width = static_cast<int64_t>(columns.size());
  const auto stored = reader.info().dtype;
  const bool whole = std::all_of(columns.begin(), columns.end(), [](const Column& column) { return column.discrete; });
  const auto dtype = whole                                                            ? at::kLong
                     : stored.starts_with("float32") || stored.starts_with("float16") ? at::kFloat
                                                                                      : at::kDouble;
  std::vector<int64_t> shape{reader.rows()};
  const auto& event = reader.event_shape();
  if (!reader.flat()) shape.insert(shape.end(), event.begin(), event.end());
  NumpyWriter writer(path, dtype, shape);
  const auto step = rows_at_once(width);
  for (int64_t begin = 0; begin < reader.rows(); begin += step)
    writer.append(reader.read(begin, std::min(reader.rows(), begin + step), dtype));
  writer.finish();
}

std::string from_numpy(const std::string& from, Format format, const std::string& to, const ConvertOptions& options) {
  TableWriter writer(to);
  if (format == Format::npy) {
    NumpyArray array(from);
    const auto rows = array.shape()[0];
    write_array(writer, options.object.empty() ? "/x" : options.object, std::move(array), options.columns, from);
    writer.finish();
    return c10::str(to, ": ", rows, " rows");
  }
  const NumpyArchive archive(from);
  int64_t arrays = 0;
  for (const auto& name : archive.names()) {
    if (!options.object.empty() && last_part(options.object) != name && options.object != "/" + name) continue;
    write_array(writer, "/" + name, archive.open(name), options.columns, from + ":" + name);
    ++arrays;
  }
  check(arrays > 0, from, ": holds no array '", options.object, "'; there are ", listed(archive.names()));
  writer.finish();
  return c10::str(to, ": ", arrays, arrays == 1 ? " array" : " arrays");
}

std::string to_archive(const std::string& from, const std::string& to, const ConvertOptions& options) {
  std::vector<std::string> objects{options.object};
  if (options.object.empty()) {
    objects.clear();
    for (const auto& table : tables_in(from)) objects.push_back(table.object);
    check(!objects.empty(), from, ": no object of it can be read as a table");
  }
  /// Removes the arrays once they are packed.
  struct Loose {
    std::vector<std::pair<std::string, std::string>> files;
    ~Loose() {
      std::error_code ignored;
      for (const auto& [name, file] : files) std::filesystem::remove(file, ignored);
    }
  } loose;
  for (const auto& object : objects) {
    const TableReader reader({from, object, options.columns});
    const auto name = object == "/" ? std::string("table") : object.substr(object.starts_with("/") ? 1 : 0);
    loose.files.emplace_back(name, c10::str(to, ".", loose.files.size(), ".npy.part"));
    write_npy(reader, loose.files.back().second);
  }
  write_archive(to, loose.files);
  return c10::str(to, ": ", objects.size(), objects.size() == 1 ? " array" : " arrays");
}

}  // namespace

std::string convert_table(const std::string& from, const std::string& to, const ConvertOptions& options) {
  const auto source = format_of(from), target = format_of(to);
  check((source == Format::hdf5) != (target == Format::hdf5), "cannot convert ", from, " to ", to,
        ": one of them has to be an HDF5 file");
  check(options.dtype == "float32" || options.dtype == "float64", "dtype: unknown value '", options.dtype,
        "'; allowed are float32, float64");
  check(from != to, from, ": would be overwritten");
  const TableSource table{from, options.object, options.columns};
  if (source == Format::text) {
    const auto object = options.object.empty() ? "/x" : options.object;
    const auto rows =
        csv_to_table(from, to, object, options.dtype == "float32" ? at::kFloat : at::kDouble, text_options(options));
    return c10::str(to, ": ", rows, " rows");
  }
  if (source != Format::hdf5) return from_numpy(from, source, to, options);
  if (target == Format::text) return c10::str(to, ": ", table_to_csv(table, to, text_options(options)), " rows");
  if (target == Format::npz) return to_archive(from, to, options);
  const TableReader reader(table);
  write_npy(reader, to);
  return c10::str(to, ": ", reader.rows(), " rows");
}

}  // namespace diffeo
