#include "diffeo/data/table_reader.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "diffeo/data/table_columns.h"

namespace diffeo {
namespace {

using hdf5::Kind;
using hdf5::Object;
using hdf5::Shape;

constexpr int64_t most_columns = int64_t{1} << 20;
constexpr int64_t block_bytes = int64_t{64} << 20;  ///< of what is read at once

int64_t physical_memory() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

double in_gib(double bytes) { return std::round(bytes / (1 << 30) * 10) / 10; }

/// Refuses sizes that can only end in an exhausted machine, before anything is allocated.
void check_memory(const std::string& where, int64_t rows, int64_t columns, int64_t bytes_each) {
  const double bytes = static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(bytes_each);
  check(bytes < static_cast<double>(physical_memory()), where, ": ", rows, " rows of ", columns, " numbers need ",
        in_gib(bytes), " GiB of memory, this machine has ", in_gib(static_cast<double>(physical_memory())),
        "; read fewer rows or columns, or stream the table");
}

int64_t product(const std::string& where, Shape::const_iterator begin, Shape::const_iterator end) {
  int64_t total = 1;
  for (auto size = begin; size != end; ++size)
    check(!__builtin_mul_overflow(total, *size, &total), where, ": absurd shape");
  return total;
}

/// Numbers, and arrays of them, are what HDF5 can be asked for one by one.
bool is_leaf(const hdf5::Type& type) {
  switch (type.kind) {
    case Kind::integer:
    case Kind::floating:
    case Kind::enumeration:
    case Kind::boolean:
    case Kind::bitfield:
      return true;
    case Kind::array:
      return type.members[0].type.kind != Kind::array && is_leaf(type.members[0].type);
    default:
      return false;
  }
}

const hdf5::Type& element_of(const hdf5::Type& type) {
  return type.kind == Kind::array ? type.members.at(0).type : type;
}

bool in_words_of_numbers(const hdf5::Type& type) {
  if (type.kind == Kind::compound)
    return std::any_of(type.members.begin(), type.members.end(),
                       [](const hdf5::Member& member) { return in_words_of_numbers(member.type); });
  return is_leaf(type) && element_of(type).numeric();
}

/// HDF5 gives fill values for what is missing of a virtual dataset: numbers that nobody wrote.
void check_sources(const Object& root, const std::string& where,
                   const std::vector<std::pair<std::string, std::string>>& sources) {
  std::set<std::pair<std::string, std::string>> seen;
  for (auto [file, object] : sources) {
    for (auto* name : {&file, &object})
      if (const auto block = name->find("%b"); block != std::string::npos) name->replace(block, 2, "0");
    if (!seen.insert({file, object}).second) continue;
    bool found = false;
    if (file == ".") {
      found = root.has(object);
    } else {
      const auto beside = std::filesystem::path(root.file()).parent_path() / file;
      for (const auto& path : {beside, std::filesystem::path(file)}) {
        std::error_code ignored;
        if (!found && std::filesystem::exists(path, ignored)) found = hdf5::open_file(path.string()).has(object);
      }
    }
    check(found, where, ": is a virtual dataset with a part in '", object, "' of the file '", file,
          "', which is missing");
  }
}

void check_storage(const Object& root, const Object& dataset, int64_t points, const hdf5::Type& type) {
  const auto storage = dataset.storage();
  for (const auto& filter : storage.filters)
    check(
        filter.available, dataset.where(), ": is compressed by the filter '", filter.name, "' (number ", filter.id,
        "), which this HDF5 does not have; point HDF5_PLUGIN_PATH at a plugin for it, or rewrite the file where it can "
        "be read: h5repack -f GZIP=4 old.h5 new.h5");
  check_sources(root, dataset.where(), storage.sources);
  if (!storage.in_this_file) return;
  std::error_code ignored;
  const auto file_bytes = static_cast<int64_t>(std::filesystem::file_size(dataset.file(), ignored));
  check(storage.bytes <= file_bytes, dataset.where(), ": claims ", storage.bytes, " bytes of values, but the file has ",
        file_bytes, "; it is truncated or damaged");
  // HDF5 1.10 believes the shape and reads beyond what is stored.
  const bool whole = storage.chunk.empty() && storage.bytes > 0;
  check(!whole || static_cast<double>(points) * static_cast<double>(type.bytes) <= static_cast<double>(storage.bytes),
        dataset.where(), ": stores ", storage.bytes, " bytes, fewer than its shape needs; the file is damaged");
}

/// An object by its path; one that is missing is named with those that are there.
Object open_object(const Object& root, const std::string& path) {
  const auto full = path.starts_with("/") ? path : "/" + path;
  if (full == "/") return root.open("/");
  if (root.has(full)) return root.open(full);
  std::vector<std::string> known;
  for (const auto& table : find_tables(root).tables) known.push_back(table.object);
  throw Error(c10::str(root.file(), ": no object '", full, "'", suggestion(full, known), "; ",
                       known.empty() ? "no object of it can be read as a table" : "tables are " + listed(known)));
}

Object open_only_table(const Object& root) {
  const auto found = find_tables(root);
  std::vector<std::string> known;
  for (const auto& table : found.tables) known.push_back(table.object);
  check(!known.empty(), root.file(), ": no object of it can be read as a table",
        found.unreadable.empty() ? "" : ": " + found.unreadable.front());
  check(known.size() == 1, root.file(), ": has ", known.size(), " tables; name one of ", listed(known));
  return root.open(known[0]);
}

/// The columns `wanted` of a block whose first one has the number `first`.
Tensor picked(const Tensor& block, const std::vector<int64_t>& wanted, int64_t first) {
  std::vector<int64_t> places;
  for (const auto column : wanted) places.push_back(column - first);
  const auto count = static_cast<int64_t>(places.size());
  if (count == block.size(1) && std::is_sorted(places.begin(), places.end())) return block;
  return block.index_select(1, at::tensor(places));
}

}  // namespace

TableReader::TableReader(const TableSource& source) {
  const auto root = hdf5::open_file(source.file);
  open(root, source.object.empty() ? open_only_table(root) : open_object(root, source.object), source.columns);
}

TableReader::TableReader(const Object& root, Object object, const std::vector<std::string>& wanted) {
  open(root, std::move(object), wanted);
}

void TableReader::open(const Object& root, Object object, const std::vector<std::string>& wanted) {
  file_ = root.file();
  object_ = object.path();
  where_ = object.where();
  if (object.is_group()) {
    kind_ = "group of columns";
    add_group(root, object, wanted);
  } else {
    check(object.is_dataset(), where_, ": is neither a dataset nor a group");
    add_dataset(root, std::move(object));
    kind_ = parts_[0].compound ? "compound" : "dataset";
  }
  choose(wanted);
  if (kind_ == "dataset" && columns_ == all_columns_) find_image_shape(root);
}

void TableReader::find_image_shape(const Object& root) {
  for (auto path = object_; image_shape_.empty(); path = path.substr(0, path.rfind('/'))) {
    Json stated;
    try {
      stated = root.open(path.empty() ? "/" : path).attribute("image_shape");
    } catch (const Error&) {  // the table itself may be sound
    }
    if (stated.is_array() &&
        std::all_of(stated.begin(), stated.end(), [](const Json& side) { return side.is_number_integer(); }))
      image_shape_ = stated.get<std::vector<int64_t>>();
    if (path.empty()) break;
  }
  if (image_shape_.empty() && event_shape_.size() > 1) image_shape_ = event_shape_;
}

void TableReader::add_dataset(const Object& root, Object dataset) {
  const auto where = dataset.where();
  const auto type = dataset.type();
  check(in_words_of_numbers(type), where, ": holds ", type.name(), ", not numbers");
  const auto shape = dataset.shape();
  check(shape && !shape->empty(), where, ": is a single value, not a table; a table has one row or more");
  check_storage(root, dataset, product(where, shape->begin(), shape->end()), type);

  Part part{.dataset = std::move(dataset),
            .shape = *shape,
            .compound = type.kind == Kind::compound,
            .leaves = {},
            .chosen = {}};
  const auto each = product(where, shape->begin() + 1, shape->end());  // elements in a row
  std::vector<Column> columns;
  const auto add_leaf = [&](const hdf5::Type& leaf) {
    const auto width = product(where, leaf.shape.begin(), leaf.shape.end());
    int64_t total = 0;
    check(!__builtin_mul_overflow(width, each, &total) && part.width + total <= most_columns, where, ": has rows of ",
          "more than ", most_columns, " numbers, too many to be columns");
    if (element_of(leaf).numeric())
      part.leaves.push_back({.index = part.leaves_in_type,
                             .first = part.width,
                             .width = total,
                             .bits = element_of(leaf).kind == Kind::bitfield});
    else
      return int64_t{0};
    part.width += total;
    return total;
  };
  part.leaves_in_type = 0;
  if (!part.compound) {
    const auto width = add_leaf(type);
    ++part.leaves_in_type;
    part.block_columns = shape->size() == 2 && type.kind != Kind::array;
    columns = columns_of(part.dataset, root, width, element_of(type).discrete());
    event_shape_.assign(shape->begin() + 1, shape->end());
    event_shape_.insert(event_shape_.end(), type.shape.begin(), type.shape.end());
    dtype_ = element_of(type).name();
  } else {
    check(each == 1, where, ": is a compound dataset of ", shape->size(), " dimensions; a table has one");
    const auto add_fields = [&](const auto& self, const hdf5::Type& compound, const std::string& before) -> void {
      for (const auto& [name, field] : compound.members) {
        if (field.kind == Kind::compound) self(self, field, before + name + ".");
        if (!is_leaf(field)) continue;
        const auto width = add_leaf(field);
        ++part.leaves_in_type;
        const auto names = field.kind == Kind::array ? pandas_names(part.dataset, name) : std::vector<std::string>{};
        for (int64_t i = 0; i < width; ++i)
          columns.push_back({.name = field.kind != Kind::array ? before + name
                                     : static_cast<int64_t>(names.size()) == width
                                         ? names[i]
                                         : c10::str(before, name, "[", i, "]"),
                             .unit = {},
                             .discrete = element_of(field).discrete()});
        if (width > 0)
          dtype_ = dtype_.empty() || dtype_ == element_of(field).name() ? element_of(field).name() : "mixed";
      }
    };
    add_fields(add_fields, type, "");
    add_units(part.dataset, columns);
  }
  part.first = static_cast<int64_t>(all_columns_.size());
  const auto chunk = part.dataset.storage().chunk;
  if (!chunk.empty()) chunk_rows_ = std::max(chunk_rows_, chunk[0]);
  rows_ = shape->at(0);
  all_columns_.insert(all_columns_.end(), columns.begin(), columns.end());
  parts_.push_back(std::move(part));
}

void TableReader::add_group(const Object& root, const Object& group, const std::vector<std::string>& wanted) {
  std::string first, dtype;
  int64_t rows = 0;
  for (const auto& link : group.links()) {
    if (!group.has(link.name)) continue;  // leads nowhere
    auto child = group.open(link.name);
    if (!child.is_dataset()) continue;
    const auto shape = child.shape();
    if (!shape || shape->empty() || !element_of(child.type()).numeric()) continue;
    const bool named = std::find(wanted.begin(), wanted.end(), link.name) != wanted.end();
    if (!wanted.empty() && !named && (shape->size() != 1 || (!first.empty() && shape->at(0) != rows))) continue;
    check(shape->size() == 1, child.where(), ": has ", shape->size(),
          " dimensions; a group is a table if its datasets have one each. Name a dataset of it, or choose columns");
    check(first.empty() || shape->at(0) == rows, child.where(), ": has ", shape->at(0), " rows, but '", first, "' has ",
          rows, "; a group is a table if its datasets have one length. Name a dataset of it, or choose columns");
    if (first.empty()) first = link.name;
    rows = shape->at(0);
    dtype_.clear();
    add_dataset(root, std::move(child));
    all_columns_.back().name = link.name;
    dtype = dtype.empty() || dtype == dtype_ ? dtype_ : "mixed";
  }
  check(!parts_.empty(), where_, ": is a group without numeric datasets of one dimension; name a dataset");
  dtype_ = dtype;
  event_shape_ = {static_cast<int64_t>(parts_.size())};
}

void TableReader::choose(const std::vector<std::string>& wanted) {
  const auto chosen = choose_columns(where_, all_columns_, wanted);
  for (const auto index : chosen) columns_.push_back(all_columns_[index]);
  auto sorted = chosen;
  std::sort(sorted.begin(), sorted.end());
  for (auto& part : parts_)
    for (const auto index : sorted)
      if (index >= part.first && index < part.first + part.width) part.chosen.push_back(index - part.first);
  for (const auto index : chosen)
    order_.push_back(std::lower_bound(sorted.begin(), sorted.end(), index) - sorted.begin());
  if (!wanted.empty() || parts_[0].compound || event_shape_.empty())
    event_shape_ = {static_cast<int64_t>(columns_.size())};
}

TableInfo TableReader::info() const { return {object_, kind_, rows_, columns_, dtype_, image_shape_}; }

Tensor TableReader::read(int64_t begin, int64_t end, torch::Dtype dtype) const {
  check(0 <= begin && begin <= end && end <= rows_, where_, ": rows ", begin, " to ", end, " of ", rows_,
        " were asked for");
  check(dtype == at::kFloat || dtype == at::kDouble || dtype == at::kLong, where_,
        ": tables are read as float32, float64 or int64, not as ", dtype);
  const auto width = static_cast<int64_t>(columns_.size());
  if (dtype == at::kLong)
    for (const auto& column : columns_)
      check(column.discrete, where_, ": column '", column.name, "' does not hold integers");
  check_memory(where_, end - begin, width, at::elementSize(dtype));
  const auto options = torch::TensorOptions(dtype);
  auto values = at::empty({end - begin, width}, options);

  int64_t widest = 1;
  for (const auto& part : parts_) widest = std::max(widest, part.width);
  check_memory(where_, std::min(chunk_rows_, std::max<int64_t>(end - begin, 1)), widest, 8);
  // Whole chunks at a time where they are not larger than the rows asked for: each is unpacked once.
  auto step = std::max<int64_t>(1, block_bytes / (8 * widest));
  step = std::max(step / chunk_rows_ * chunk_rows_, std::min(chunk_rows_, std::max(step, block_bytes / widest)));
  step = std::max<int64_t>(step, 1);
  for (int64_t from = begin; from < end;) {
    const auto to = std::min(end, (from / step + 1) * step);
    auto block = values.narrow(0, from - begin, to - from);
    int64_t column = 0;
    for (const auto& part : parts_) {
      const auto taken = static_cast<int64_t>(part.chosen.size());
      if (taken > 0) block.narrow(1, column, taken).copy_(read_part(part, from, to, dtype));
      column += taken;
    }
    from = to;
  }
  if (std::is_sorted(order_.begin(), order_.end())) return values;
  return values.index_select(1, at::tensor(order_));
}

Tensor TableReader::read_part(const Part& part, int64_t begin, int64_t end, torch::Dtype dtype) const {
  if (part.block_columns) {
    const auto low = part.chosen.front(), high = part.chosen.back() + 1;
    const hdf5::Selection selection{
        .begin = {begin, low}, .count = {end - begin, high - low}, .leaves = {}, .element = {}};
    const auto block = read_numbers(part, selection, high - low, part.leaves[0].bits, dtype);
    return picked(block, part.chosen, low);
  }
  hdf5::Selection selection{.begin = Shape(part.shape.size()), .count = part.shape, .leaves = {}, .element = {}};
  selection.begin[0] = begin;
  selection.count[0] = end - begin;
  std::vector<Tensor> blocks;
  std::vector<int64_t> columns;  // those of the blocks
  for (const bool bits : {false, true}) {
    selection.leaves.assign(part.leaves_in_type, false);
    int64_t width = 0;
    for (const auto& leaf : part.leaves) {
      const auto next = std::lower_bound(part.chosen.begin(), part.chosen.end(), leaf.first);
      if (leaf.bits != bits || next == part.chosen.end() || *next >= leaf.first + leaf.width) continue;
      selection.leaves[leaf.index] = true;
      for (int64_t i = 0; i < leaf.width; ++i) columns.push_back(leaf.first + i);
      width += leaf.width;
    }
    if (width > 0) blocks.push_back(read_numbers(part, selection, width, bits, dtype));
  }
  const auto block = blocks.size() == 1 ? blocks[0] : at::cat(blocks, 1);
  std::vector<int64_t> place(part.width), places;
  for (size_t i = 0; i < columns.size(); ++i) place[columns[i]] = static_cast<int64_t>(i);
  for (const auto column : part.chosen) places.push_back(place[column]);
  return picked(block, places, 0);
}

Tensor TableReader::read_numbers(const Part& part, hdf5::Selection selection, int64_t width, bool bits,
                                 torch::Dtype dtype) const {
  const auto rows = selection.count[0];
  selection.element = bits ? at::kLong : dtype;
  auto block = at::empty({rows, width}, torch::TensorOptions(selection.element));
  part.dataset.read(selection, block.data_ptr());
  if (dtype == at::kLong && rows > 0)
    check(block.max().item<int64_t>() < std::numeric_limits<int64_t>::max(), part.dataset.where(),
          ": holds integers beyond int64, from 2^63 on; read it as float64");
  return block.to(dtype);
}

void TableReader::check_finite(const Tensor& values, int64_t begin) const {
  if (!values.is_floating_point()) return;
  const auto finite = at::isfinite(values);
  if (finite.all().item<bool>()) return;
  const auto bad = finite.logical_not().nonzero()[0];
  const auto row = begin + bad[0].item<int64_t>(), column = bad[1].item<int64_t>();
  const auto exact = read(row, row + 1, at::kDouble)[0][column].item<double>();
  const auto& name = columns_[column].name;
  if (std::isfinite(exact))
    throw Error(c10::str(where_, ": row ", row, ", column '", name, "': ", exact,
                         " is too large for float32; read the table as float64 (--dtype float64)"));
  throw Error(c10::str(where_, ": row ", row, ", column '", name,
                       "': ", std::isnan(exact) ? "missing (NaN)" : "infinite",
                       "; mend the table, leave the column out, or drop such rows with --allow-missing"));
}

FoundTables find_tables(const Object& root) {
  FoundTables found;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  const auto visit = [&](const auto& self, const Object& object, int depth) -> void {
    if (depth > 64 || !seen.insert(object.identity()).second) return;
    const auto note = [&](const auto& body) {
      try {
        body();
        return true;
      } catch (const Error& error) {
        found.unreadable.push_back(error.what());
        return false;
      }
    };
    if (object.is_dataset()) {
      note([&] { found.tables.push_back(TableReader(root, root.open(object.path())).info()); });
      return;
    }
    if (!object.is_group()) return;
    bool whole = false;  // its datasets are the columns of one table
    try {
      const TableReader reader(root, root.open(object.path()));
      whole = reader.columns().size() > 1;
      if (whole) found.tables.push_back(reader.info());
    } catch (const Error&) {
    }
    std::vector<hdf5::Link> links;
    note([&] { links = object.links(); });
    for (const auto& link : links) {
      std::optional<Object> child;
      if (!note([&] { child = object.open(link.name); })) continue;
      try {
        if (whole && child->is_dataset() && child->shape()->size() == 1) continue;
        self(self, *child, depth + 1);
      } catch (const Error& error) {
        found.unreadable.push_back(error.what());
      }
    }
  };
  visit(visit, root, 0);
  return found;
}

}  // namespace diffeo
