#include "diffeo/data/hdf5.h"

#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "diffeo/data/hdf5_types.h"
#include "diffeo/layers/base/system_error.h"

namespace diffeo::hdf5 {
namespace {

const char* filter_name(int id) {
  switch (id) {
    case H5Z_FILTER_DEFLATE:
      return "deflate";
    case H5Z_FILTER_SHUFFLE:
      return "shuffle";
    case H5Z_FILTER_FLETCHER32:
      return "fletcher32";
    case H5Z_FILTER_SZIP:
      return "szip";
    case H5Z_FILTER_NBIT:
      return "nbit";
    case H5Z_FILTER_SCALEOFFSET:
      return "scaleoffset";
    case 305:
      return "lzo";
    case 307:
      return "bzip2";
    case 32000:
      return "lzf";
    case 32001:
      return "blosc";
    case 32004:
      return "lz4";
    case 32008:
      return "bitshuffle";
    case 32013:
      return "zfp";
    case 32015:
      return "zstd";
    case 32017:
      return "sz";
    case 32026:
      return "blosc2";
    default:
      return nullptr;
  }
}

// ---- spaces ----

Handle simple_space(const Shape& shape, bool growing = false) {
  const std::vector<hsize_t> dims(shape.begin(), shape.end());
  auto largest = dims;
  if (growing && !largest.empty()) largest[0] = H5S_UNLIMITED;
  return made("HDF5", "cannot make a dataspace", [&] {
    return dims.empty() ? H5Screate(H5S_SCALAR)
                        : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), largest.data());
  });
}

std::optional<Shape> shape_of(const std::string& where, hid_t space) {
  const auto what = "cannot read its shape";
  const auto kind = call(where, what, [&] { return static_cast<int>(H5Sget_simple_extent_type(space)); });
  if (kind == H5S_NULL) return std::nullopt;
  const auto rank = call(where, what, [&] { return H5Sget_simple_extent_ndims(space); });
  std::vector<hsize_t> dims(rank);
  if (rank > 0) call(where, what, [&] { return H5Sget_simple_extent_dims(space, dims.data(), nullptr); });
  Shape shape;
  for (const auto size : dims) shape.push_back(positive(where, size));
  return shape;
}

int64_t points_in(const std::string& where, const Shape& shape) {
  int64_t points = 1;
  for (const auto size : shape)
    check(!__builtin_mul_overflow(points, size, &points), where, ": absurd shape [", c10::Join(", ", shape), "]");
  return points;
}

void select_block(const std::string& where, hid_t space, const Shape& begin, const Shape& count) {
  if (begin.empty()) return;
  const std::vector<hsize_t> from(begin.begin(), begin.end()), size(count.begin(), count.end());
  call(where, "cannot select a block",
       [&] { return H5Sselect_hyperslab(space, H5S_SELECT_SET, from.data(), nullptr, size.data(), nullptr); });
}

// ---- strings, in datasets and attributes ----

constexpr int64_t most_string_bytes = int64_t{1} << 30;

/// Fixed-size strings end at the first zero; space padding goes too.
std::string trimmed(const char* text, size_t size, bool spaces) {
  std::string copy(text, strnlen(text, size));
  if (spaces) copy.erase(copy.find_last_not_of(' ') + 1);
  return valid_utf8(std::move(copy));
}

/// Reads `points` strings by `fill(memory type, buffer)`.
template <class Fill>
std::vector<std::string> read_strings(const std::string& where, hid_t stored, hid_t space, int64_t points,
                                      Fill&& fill) {
  std::vector<std::string> texts;
  const bool variable = is_variable_string(where, stored);
  const auto type = string_memory(where, stored, variable);
  const auto bytes = size_of(type.get());
  check(bytes > 0 && points <= most_string_bytes / bytes, where, ": more than ", most_string_bytes,
        " bytes of strings");
  if (variable) {
    std::vector<char*> pointers(points, nullptr);
    call(where, "cannot read its strings", [&] { return fill(type.get(), pointers.data()); });
    for (const auto* text : pointers) texts.push_back(text ? valid_utf8(text) : "");
    call(where, "cannot free its strings",
         [&] { return H5Dvlen_reclaim(type.get(), space, H5P_DEFAULT, pointers.data()); });
  } else {
    std::vector<char> buffer(points * bytes);
    call(where, "cannot read its strings", [&] { return fill(type.get(), buffer.data()); });
    Session session;
    const bool spaces = H5Tget_strpad(stored) == H5T_STR_SPACEPAD;
    for (int64_t i = 0; i < points; ++i) texts.push_back(trimmed(buffer.data() + i * bytes, bytes, spaces));
  }
  return texts;
}

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const auto& text : texts) pointers.push_back(text.c_str());
  return pointers;
}

/// Without times, the same data make the same bytes.
void keep_no_times(const std::string& where, const Handle& creation) {
  call(where, "cannot make it", [&] { return H5Pset_obj_track_times(creation.get(), false); });
}

Handle new_group(const std::string& where, hid_t parent, const std::string& path) {
  const auto creation = made(where, "cannot make a property list", [] { return H5Pcreate(H5P_GROUP_CREATE); });
  keep_no_times(where, creation);
  return made(where, "cannot make the group",
              [&] { return H5Gcreate2(parent, path.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT); });
}

/// The groups on the way to a path, where they are missing.
void make_way(const std::string& where, hid_t group, const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos && end + 1 < path.size();
       end = path.find('/', end + 1)) {
    const auto part = path.substr(0, end);
    if (call(where, "cannot look it up", [&] { return H5Lexists(group, part.c_str(), H5P_DEFAULT); }) == 0)
      new_group(where, group, part);
  }
}

/// A link and when it was made, as far as the file says.
struct Listed {
  Link link;
  bool has_order;
  int64_t order;
};

herr_t add_link(hid_t, const char* name, const H5L_info_t* info, void* links) {
  const auto kind = info->type == H5L_TYPE_HARD       ? LinkKind::hard
                    : info->type == H5L_TYPE_SOFT     ? LinkKind::soft
                    : info->type == H5L_TYPE_EXTERNAL ? LinkKind::external
                                                      : LinkKind::other;
  static_cast<std::vector<Listed>*>(links)->push_back({{name, kind, ""}, info->corder_valid > 0, info->corder});
  return 0;
}

herr_t add_name(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->push_back(name);
  return 0;
}

Handle new_dataset(const std::string& where, hid_t group, const std::string& path, hid_t type,
                   const Creation& creation) {
  const auto space = simple_space(creation.shape, creation.growing);
  const auto list = made(where, "cannot make a property list", [] { return H5Pcreate(H5P_DATASET_CREATE); });
  if (!creation.chunk.empty()) {
    const std::vector<hsize_t> chunk(creation.chunk.begin(), creation.chunk.end());
    call(where, "cannot set its chunks",
         [&] { return H5Pset_chunk(list.get(), static_cast<int>(chunk.size()), chunk.data()); });
    if (creation.deflate > 0) {
      call(where, "cannot ask for the shuffle filter", [&] { return H5Pset_shuffle(list.get()); });
      call(where, "cannot ask for compression", [&] { return H5Pset_deflate(list.get(), creation.deflate); });
    }
  }
  keep_no_times(where, list);
  make_way(where, group, path);
  return made(where, "cannot make it",
              [&] { return H5Dcreate2(group, path.c_str(), type, space.get(), H5P_DEFAULT, list.get(), H5P_DEFAULT); });
}

std::string joined(const std::string& path, const std::string& name) {
  if (name.starts_with("/")) return name;
  return path == "/" ? "/" + name : path + "/" + name;
}

/// Writes to a dataset or attribute that has just been made.
void write_all(const std::string& where, hid_t dataset, hid_t type, const void* values) {
  call(where, "cannot write it", [&] { return H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values); });
}

}  // namespace

// ---- Object ----

Object::Object(Handle id, std::string file, std::string path)
    : id_(std::move(id)), file_(std::move(file)), path_(std::move(path)) {}

bool Object::is_group() const {
  return call(where(), "cannot be looked at", [&] { return static_cast<int>(H5Iget_type(id_.get())); }) == H5I_GROUP;
}

bool Object::is_dataset() const {
  return call(where(), "cannot be looked at", [&] { return static_cast<int>(H5Iget_type(id_.get())); }) == H5I_DATASET;
}

std::pair<uint64_t, uint64_t> Object::identity() const {
  H5O_info_t info{};
  call(where(), "cannot be looked at", [&] { return H5Oget_info2(id_.get(), &info, H5O_INFO_BASIC); });
  return {info.fileno, info.addr};
}

std::vector<Link> Object::links() const {
  std::vector<Listed> listed;
  // In "native" order, and sorted here: HDF5 1.10 frees memory that it never filled when it sorts a damaged group.
  call(where(), "cannot be listed",
       [&] { return H5Literate(id_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, nullptr, add_link, &listed); });
  const bool by_order = std::all_of(listed.begin(), listed.end(), [](const Listed& one) { return one.has_order; });
  std::sort(listed.begin(), listed.end(), [&](const Listed& a, const Listed& b) {
    return by_order && a.order != b.order ? a.order < b.order : a.link.name < b.link.name;
  });
  std::vector<Link> links;
  for (auto& one : listed) links.push_back(std::move(one.link));
  for (auto& link : links) {
    if (link.kind != LinkKind::soft && link.kind != LinkKind::external) continue;
    H5L_info_t info{};
    call(where(), "cannot be listed", [&] { return H5Lget_info(id_.get(), link.name.c_str(), &info, H5P_DEFAULT); });
    std::vector<char> value(std::min<size_t>(info.u.val_size, 1 << 16) + 1, '\0');
    call(where(), "cannot be listed",
         [&] { return H5Lget_val(id_.get(), link.name.c_str(), value.data(), value.size() - 1, H5P_DEFAULT); });
    if (link.kind == LinkKind::soft) {
      link.target = value.data();
    } else {
      const char *file = "", *object = "";
      call(where(), "cannot be listed",
           [&] { return H5Lunpack_elink_val(value.data(), value.size() - 1, nullptr, &file, &object); });
      link.target = c10::str("'", object, "' of file '", file, "'");
    }
  }
  return links;
}

bool Object::has(const std::string& path) const {
  Session session;
  // H5Lexists asks about the last step only and fails if one before it is missing.
  for (size_t end = path.find_first_not_of('/'); end != std::string::npos && end < path.size();) {
    end = std::min(path.find('/', end), path.size());
    const auto part = path.substr(0, end);
    if (H5Lexists(id_.get(), part.c_str(), H5P_DEFAULT) <= 0) return false;
    if (H5Oexists_by_name(id_.get(), part.c_str(), H5P_DEFAULT) <= 0) return false;
    end = path.find_first_not_of('/', end);
  }
  return true;
}

Object Object::open(const std::string& path) const {
  const auto full = joined(path_, path);
  auto id = made(file_ + ":" + full, "cannot open it", [&] { return H5Oopen(id_.get(), path.c_str(), H5P_DEFAULT); });
  return {std::move(id), file_, full};
}

Object Object::make_group(const std::string& path) {
  if (path == "/" || has(path)) return open(path);
  const auto full = joined(path_, path);
  make_way(file_ + ":" + full, id_.get(), path);
  return {new_group(file_ + ":" + full, id_.get(), path), file_, full};
}

Object Object::make_dataset(const std::string& path, at::ScalarType element, const Creation& creation) {
  const auto full = joined(path_, path);
  const auto type = element_type(element);
  return {new_dataset(file_ + ":" + full, id_.get(), path, type.get(), creation), file_, full};
}

void Object::write_string(const std::string& path, const std::string& text) {
  const auto full = file_ + ":" + joined(path_, path);
  check(text.find('\0') == std::string::npos, full, ": the text to write holds a zero byte");
  const auto type = utf8_type();
  const auto dataset = new_dataset(full, id_.get(), path, type.get(), {});
  const char* const pointer = text.c_str();
  write_all(full, dataset.get(), type.get(), &pointer);
}

void Object::write_strings(const std::string& path, const std::vector<std::string>& texts) {
  const auto full = file_ + ":" + joined(path_, path);
  const auto type = utf8_type();
  const auto dataset =
      new_dataset(full, id_.get(), path, type.get(), {.shape = {static_cast<int64_t>(texts.size())}, .chunk = {}});
  if (!texts.empty()) write_all(full, dataset.get(), type.get(), pointers_to(texts).data());
}

Type Object::type() const {
  const auto id = made(where(), "cannot read its type", [&] { return H5Dget_type(id_.get()); });
  return describe_type(where(), id.get());
}

std::optional<Shape> Object::shape() const {
  const auto space = made(where(), "cannot read its shape", [&] { return H5Dget_space(id_.get()); });
  return shape_of(where(), space.get());
}

Storage Object::storage() const {
  const auto what = "cannot read how it is stored";
  Storage storage;
  const auto list = made(where(), what, [&] { return H5Dget_create_plist(id_.get()); });
  const auto layout = call(where(), what, [&] { return static_cast<int>(H5Pget_layout(list.get())); });
  storage.in_this_file = layout != H5D_VIRTUAL;
  {
    Session session;
    storage.bytes = static_cast<int64_t>(H5Dget_storage_size(id_.get()));
  }
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(H5S_MAX_RANK);
    const auto rank = call(where(), what, [&] { return H5Pget_chunk(list.get(), H5S_MAX_RANK, chunk.data()); });
    for (int i = 0; i < rank; ++i) storage.chunk.push_back(positive(where(), chunk[i]));
  }
  if (layout == H5D_CONTIGUOUS)
    storage.in_this_file = call(where(), what, [&] { return H5Pget_external_count(list.get()); }) == 0;
  const auto filters = call(where(), what, [&] { return H5Pget_nfilters(list.get()); });
  for (int i = 0; i < filters; ++i) {
    Session session;
    unsigned flags = 0, config = 0;
    size_t values = 0;
    char name[256] = "";
    const auto id = H5Pget_filter2(list.get(), i, &flags, &values, nullptr, sizeof(name), name, &config);
    check(id >= 0, where(), ": ", what, ": ", reason());
    const auto* known = filter_name(id);
    storage.filters.push_back(
        {id, known ? known : valid_utf8(std::string(name, strnlen(name, sizeof(name)))), H5Zfilter_avail(id) > 0});
  }
  if (layout == H5D_VIRTUAL) {
    size_t parts = 0;
    call(where(), what, [&] { return H5Pget_virtual_count(list.get(), &parts); });
    for (size_t i = 0; i < parts; ++i) {
      const auto text = [&](auto get) {
        Session session;
        const auto size = get(list.get(), i, nullptr, 0);
        check(size >= 0, where(), ": ", what, ": ", reason());
        std::string name(size, '\0');
        get(list.get(), i, name.data(), name.size() + 1);
        return name;
      };
      storage.sources.emplace_back(text(H5Pget_virtual_filename), text(H5Pget_virtual_dsetname));
    }
  }
  return storage;
}

void Object::read(const Selection& selection, void* out) const {
  const auto points = points_in(where(), selection.count);
  if (points == 0) return;
  const auto stored = made(where(), "cannot read its type", [&] { return H5Dget_type(id_.get()); });
  size_t leaf = 0;
  const auto type = memory_type(where(), stored.get(), selection, leaf);
  check(type.get() >= 0, where(), ": nothing to read was chosen");
  const auto space = made(where(), "cannot read its shape", [&] { return H5Dget_space(id_.get()); });
  select_block(where(), space.get(), selection.begin, selection.count);
  const auto memory = simple_space({points});
  call(where(), "cannot read its values",
       [&] { return H5Dread(id_.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, out); });
}

std::vector<std::string> Object::strings() const {
  const auto stored = made(where(), "cannot read its type", [&] { return H5Dget_type(id_.get()); });
  check(kind_of(where(), stored.get()) == Kind::string, where(), ": expected strings, got ", type().name());
  const auto dims = shape();
  if (!dims) return {};
  const auto points = points_in(where(), *dims);
  if (points == 0) return {};
  const auto space = made(where(), "cannot read its shape", [&] { return H5Dget_space(id_.get()); });
  return read_strings(where(), stored.get(), space.get(), points, [&](hid_t type, void* out) {
    return H5Dread(id_.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out);
  });
}

void Object::extend(int64_t rows) {
  auto dims = shape().value();
  dims.at(0) = rows;
  const std::vector<hsize_t> size(dims.begin(), dims.end());
  call(where(), "cannot be extended", [&] { return H5Dset_extent(id_.get(), size.data()); });
}

void Object::write(at::ScalarType element, const Shape& begin, const Shape& count, const void* values) {
  const auto points = points_in(where(), count);
  if (points == 0) return;
  const auto type = element_type(element);
  const auto space = made(where(), "cannot read its shape", [&] { return H5Dget_space(id_.get()); });
  select_block(where(), space.get(), begin, count);
  const auto memory = simple_space({points});
  call(where(), "cannot write its values",
       [&] { return H5Dwrite(id_.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, values); });
}

std::vector<std::string> Object::attributes() const {
  std::vector<std::string> names;
  hsize_t position = 0;
  call(where(), "its attributes cannot be listed",
       [&] { return H5Aiterate2(id_.get(), H5_INDEX_NAME, H5_ITER_NATIVE, &position, add_name, &names); });
  std::sort(names.begin(), names.end());
  return names;
}

Json Object::attribute(const std::string& name) const {
  const auto place = where() + " attribute '" + name + "'";
  if (call(place, "cannot be looked up", [&] { return H5Aexists(id_.get(), name.c_str()); }) == 0) return nullptr;
  const auto id = made(place, "cannot be opened", [&] { return H5Aopen(id_.get(), name.c_str(), H5P_DEFAULT); });
  const auto stored = made(place, "cannot be read", [&] { return H5Aget_type(id.get()); });
  const auto space = made(place, "cannot be read", [&] { return H5Aget_space(id.get()); });
  const auto dims = shape_of(place, space.get());
  if (!dims) return nullptr;
  const auto points = points_in(place, *dims);
  const auto type = describe_type(place, stored.get());
  Json values = Json::array();
  if (type.kind == Kind::string) {
    if (points > 0)
      for (const auto& text : read_strings(place, stored.get(), space.get(), points,
                                           [&](hid_t memory, void*out) { return H5Aread(id.get(), memory, out); }))
        values.push_back(text);
  } else if (type.numeric() && type.kind != Kind::bitfield) {
    check(points <= most_string_bytes / 8, place, ": absurd shape [", c10::Join(", ", *dims), "]");
    const auto numbers = [&](auto example, at::ScalarType element) {
      std::vector<decltype(example)> read(points);
      const auto memory = element_type(element);
      if (points > 0) call(place, "cannot be read", [&] { return H5Aread(id.get(), memory.get(), read.data()); });
      for (const auto value : read) values.push_back(value);
    };
    if (type.kind == Kind::floating)
      numbers(double{}, at::kDouble);
    else if (type.is_signed)
      numbers(int64_t{}, at::kLong);
    else
      numbers(uint64_t{}, at::kUInt64);
  } else {
    return nullptr;
  }
  return dims->empty() ? values.at(0) : values;
}

void Object::set_attribute(const std::string& name, const Json& value) {
  const auto place = where() + " attribute '" + name + "'";
  if (call(place, "cannot be looked up", [&] { return H5Aexists(id_.get(), name.c_str()); }) > 0)
    call(place, "cannot be replaced", [&] { return H5Adelete(id_.get(), name.c_str()); });
  const auto store = [&](const Handle& type, const Shape& shape, const void* values) {
    const auto space = simple_space(shape);
    const auto id = made(place, "cannot be made", [&] {
      return H5Acreate2(id_.get(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT);
    });
    call(place, "cannot be written", [&] { return H5Awrite(id.get(), type.get(), values); });
  };
  if (value.is_string()) {
    const auto text = value.get<std::string>();
    const char* const pointer = text.c_str();
    store(utf8_type(), {}, &pointer);
  } else if (value.is_array() && !value.empty() && value[0].is_number_integer()) {
    const auto numbers = value.get<std::vector<int64_t>>();
    store(element_type(at::kLong), {static_cast<int64_t>(numbers.size())}, numbers.data());
  } else if (value.is_array()) {
    const auto texts = value.get<std::vector<std::string>>();
    store(utf8_type(), {static_cast<int64_t>(texts.size())}, pointers_to(texts).data());
  } else if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    store(element_type(at::kLong), {}, &number);
  } else {
    const auto number = value.get<double>();
    store(element_type(at::kDouble), {}, &number);
  }
}

// ---- files ----

Object open_file(const std::string& path) {
  struct stat status {};
  check_system(::stat(path.c_str(), &status) == 0, path, ": cannot open the file");
  check(S_ISREG(status.st_mode), path, ": cannot open the file: it is ",
        S_ISDIR(status.st_mode) ? "a folder" : "not a regular file");
  check_system(std::ifstream(path).good(), path, ": cannot open the file");
  Session session;
  check(H5Fis_hdf5(path.c_str()) > 0, path, ": not an HDF5 file",
        status.st_size == 0 ? " (it is empty)" : "; CSV and NumPy files become one by `diffeo convert`");
  const auto file =
      made(path, "cannot open the file", [&] { return H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT); });
  auto root = made(path, "cannot open the file", [&] { return H5Oopen(file.get(), "/", H5P_DEFAULT); });
  return {std::move(root), path, "/"};  // keeps the file open
}

NewFile::NewFile(const std::string& path, const std::string& shown_as, int64_t user_block, bool checked_metadata)
    : shown_as_(shown_as) {
  const auto create = made(shown_as, "cannot make the file", [] { return H5Pcreate(H5P_FILE_CREATE); });
  keep_no_times(shown_as, create);
  const auto access = made(shown_as, "cannot make the file", [] { return H5Pcreate(H5P_FILE_ACCESS); });
  call(shown_as, "cannot make the file",
       [&] { return H5Pset_userblock(create.get(), static_cast<hsize_t>(user_block)); });
  if (checked_metadata)
    call(shown_as, "cannot make the file",
         [&] { return H5Pset_libver_bounds(access.get(), H5F_LIBVER_LATEST, H5F_LIBVER_LATEST); });
  id_ = made(shown_as, "cannot make the file",
             [&] { return H5Fcreate(path.c_str(), H5F_ACC_TRUNC, create.get(), access.get()); });
}

Object NewFile::root() const {
  auto id = made(shown_as_, "cannot open the file", [&] { return H5Oopen(id_.get(), "/", H5P_DEFAULT); });
  return {std::move(id), shown_as_, "/"};
}

void NewFile::close() {
  call(shown_as_, "cannot write the file", [&] { return H5Fflush(id_.get(), H5F_SCOPE_GLOBAL); });
  Session session;
  check(id_.close(), shown_as_, ": cannot write the file: ", reason());
}

std::string valid_utf8(std::string text) {
  bool valid = true;
  for (size_t i = 0; valid && i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t more = byte < 0x80                   ? 0
                        : byte >= 0xC2 && byte < 0xE0 ? 1
                        : (byte & 0xF0) == 0xE0       ? 2
                        : byte >= 0xF0 && byte < 0xF5 ? 3
                                                      : 9;
    valid = more < 9 && i + more < text.size();
    for (size_t k = 1; valid && k <= more; ++k) valid = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    if (valid && more == 2) {  // no overlong forms, no surrogates
      const int code = (byte & 0x0F) << 12 | (text[i + 1] & 0x3F) << 6;
      valid = code >= 0x800 && !(code >= 0xD800 && code < 0xE000);
    }
    if (valid && more == 3) {
      const int code = (byte & 0x07) << 18 | (text[i + 1] & 0x3F) << 12;
      valid = code >= 0x10000 && code < 0x110000;
    }
    i += more + 1;
  }
  if (valid) return text;
  std::string converted;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80)
      converted += c;
    else
      converted += static_cast<char>(0xC0 | byte >> 6), converted += static_cast<char>(0x80 | (byte & 0x3F));
  }
  return converted;
}

}  // namespace diffeo::hdf5
