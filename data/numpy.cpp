#include "diffeo/data/numpy.h"

#include <ATen/ops/empty.h>
#include <unistd.h>
#include <zip.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "diffeo/data/durable_file.h"
#include "diffeo/layers/base/system_error.h"

namespace diffeo {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie in memory");

const std::vector<std::pair<std::string, torch::Dtype>>& codes() {
  static const std::vector<std::pair<std::string, torch::Dtype>> all{
      {"f8", at::kDouble}, {"f4", at::kFloat},  {"f2", at::kHalf},   {"i8", at::kLong},
      {"i4", at::kInt},    {"i2", at::kShort},  {"i1", at::kChar},   {"u1", at::kByte},
      {"u2", at::kUInt16}, {"u4", at::kUInt32}, {"u8", at::kUInt64}, {"b1", at::kBool}};
  return all;
}

void swap_bytes(char* values, int64_t count, int64_t size) {
  for (int64_t i = 0; i < count; ++i) std::reverse(values + i * size, values + (i + 1) * size);
}

int64_t file_bytes(const std::string& path) {
  std::error_code problem;
  const auto bytes = std::filesystem::file_size(path, problem);
  check(!problem, path, ": cannot open the file: ", problem.message());
  return static_cast<int64_t>(bytes);
}

std::unique_ptr<std::istream> opened(const std::string& path) {
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  check_system(file->good(), path, ": cannot open the file");
  return file;
}

int64_t product(const std::string& where, const std::vector<int64_t>& shape, size_t from = 0) {
  int64_t total = 1;
  for (size_t i = from; i < shape.size(); ++i)
    check(!__builtin_mul_overflow(total, shape[i], &total), where, ": absurd shape");
  return total;
}

}  // namespace

// ---- reading arrays ----

NumpyArray::NumpyArray(const std::string& path) : NumpyArray(opened(path), file_bytes(path), path) {}

NumpyArray::NumpyArray(std::unique_ptr<std::istream> file, int64_t bytes, std::string where)
    : file_(std::move(file)), where_(std::move(where)) {
  parse_header(bytes);
}

void NumpyArray::parse_header(int64_t bytes) {
  char start[12] = {};
  file_->read(start, 8);
  check(file_->gcount() == 8 && std::memcmp(start, "\x93NUMPY", 6) == 0, where_, ": not a NumPy array (.npy)");
  const int version = start[6];
  check(version >= 1 && version <= 3, where_, ": version ", version, " of the .npy format is not known");
  const int length_bytes = version == 1 ? 2 : 4;
  file_->read(start, length_bytes);
  int64_t length = 0;
  for (int i = length_bytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[i]);
  start_ = 8 + length_bytes + length;
  check(file_->gcount() == length_bytes && start_ <= bytes && length < (1 << 20), where_,
        ": its header is damaged or truncated");
  std::string header(length, '\0');
  file_->read(header.data(), length);

  // {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }
  std::smatch descr, order, shape;
  check(!std::regex_search(header, std::regex(R"('descr'\s*:\s*\[)")), where_,
        ": is a structured array; save its fields as arrays of an .npz file");
  check(std::regex_search(header, descr, std::regex(R"('descr'\s*:\s*'([<>|=]?)([A-Za-z]\d*)')")) &&
            std::regex_search(header, order, std::regex(R"('fortran_order'\s*:\s*(True|False))")) &&
            std::regex_search(header, shape, std::regex(R"('shape'\s*:\s*\(([0-9,\sL]*)\))")),
        where_, ": its header is damaged");
  const auto code = descr[2].str();
  const auto known =
      std::find_if(codes().begin(), codes().end(), [&](const auto& entry) { return entry.first == code; });
  check(known != codes().end(), where_, ": holds values of type '", code,
        "'; numbers of 8 to 64 bits and truth values can be read");
  dtype_ = known->second;
  swapped_ = descr[1].str() == ">";
  fortran_ = order[1].str() == "True";
  const auto dims = shape[1].str();
  static const std::regex digits(R"(\d+)");
  for (std::sregex_iterator number(dims.begin(), dims.end(), digits), end; number != end; ++number) {
    check(number->str().size() < 19, where_, ": absurd shape");
    shape_.push_back(std::stoll(number->str()));
  }
  check(!shape_.empty(), where_, ": is a single value, not a table");
  int64_t needed = 0;
  check(!__builtin_mul_overflow(product(where_, shape_), static_cast<int64_t>(at::elementSize(dtype_)), &needed),
        where_, ": absurd shape");
  check(needed <= bytes - start_, where_, ": is truncated: its shape needs ", needed, " bytes, ", bytes - start_,
        " are there");
}

Tensor NumpyArray::read(int64_t begin, int64_t end) {
  check(0 <= begin && begin <= end && end <= shape_[0], where_, ": rows ", begin, " to ", end, " of ", shape_[0],
        " were asked for");
  const auto each = product(where_, shape_, 1), rows = end - begin;
  const auto size = static_cast<int64_t>(at::elementSize(dtype_));
  auto values = at::empty({fortran_ ? each : rows, fortran_ ? rows : each}, torch::TensorOptions(dtype_));
  auto* out = static_cast<char*>(values.data_ptr());
  file_->clear();
  if (!fortran_) {
    file_->seekg(start_ + begin * each * size);
    file_->read(out, rows * each * size);
  } else {  // the first dimension runs fastest: each of the others' entries is a column of the file
    for (int64_t column = 0; column < each && file_->good(); ++column) {
      file_->seekg(start_ + (column * shape_[0] + begin) * size);
      file_->read(out + column * rows * size, rows * size);
    }
  }
  check(file_->good() || rows * each == 0, where_, ": cannot read its values");
  if (swapped_) swap_bytes(out, rows * each, size);
  auto shape = shape_;
  shape[0] = rows;
  if (!fortran_) return values.view(shape);
  // (rest in reverse, rows) -> (rows, rest)
  const std::vector<int64_t> reversed(shape.rbegin(), shape.rend());
  std::vector<int64_t> order;
  for (auto i = static_cast<int64_t>(shape.size()); i-- > 0;) order.push_back(i);
  return values.view(reversed).permute(order).contiguous();
}

// ---- writing arrays ----

struct NumpyWriter::State {
  explicit State(const std::string& path) : durable(path), file(durable.temporary(), std::ios::binary) {}
  DurableFile durable;
  std::ofstream file;
  torch::Dtype dtype = at::kDouble;
  std::vector<int64_t> shape;
  int64_t rows = 0;
};

NumpyWriter::NumpyWriter(const std::string& path, torch::Dtype dtype, const std::vector<int64_t>& shape)
    : state_(std::make_unique<State>(path)) {
  state_->dtype = dtype, state_->shape = shape;
  const auto known =
      std::find_if(codes().begin(), codes().end(), [&](const auto& entry) { return entry.second == dtype; });
  check(known != codes().end() && !shape.empty(), path, ": arrays of ", dtype, " cannot be written");
  auto header =
      c10::str("{'descr': '", at::elementSize(dtype) == 1 ? "|" : "<", known->first,
               "', 'fortran_order': False, 'shape': (", c10::Join(", ", shape), shape.size() == 1 ? ",), }" : "), }");
  header.resize((10 + header.size()) / 64 * 64 + 64 - 10 - 1, ' ');  // values begin at a multiple of 64
  header += '\n';
  state_->file << "\x93NUMPY\x01" << '\0' << static_cast<char>(header.size() & 0xFF)
               << static_cast<char>(header.size() >> 8) << header;
}

NumpyWriter::~NumpyWriter() = default;

void NumpyWriter::append(const Tensor& rows) {
  const auto values = rows.detach().to(torch::kCPU, state_->dtype).contiguous();
  state_->file.write(static_cast<const char*>(values.const_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  state_->rows += values.size(0);
}

void NumpyWriter::finish() {
  state_->file.close();
  const auto& path = state_->durable.path();
  check_system(!state_->file.fail(), path, ": cannot write the file");
  check(state_->rows == state_->shape[0], path, ": ", state_->rows, " rows were written where ", state_->shape[0],
        " were announced");
  state_->durable.commit();
}

// ---- archives ----

namespace {

using Zip = std::unique_ptr<zip_t, void (*)(zip_t*)>;

Zip open_zip(const std::string& path, const std::string& shown_as, int flags) {
  int problem = 0;
  Zip archive(zip_open(path.c_str(), flags, &problem), zip_discard);
  if (archive) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, problem);
  const std::string reason = zip_error_strerror(&error);
  zip_error_fini(&error);
  throw Error(c10::str(shown_as, ": cannot open the NumPy archive (.npz): ", reason));
}

}  // namespace

struct NumpyArchive::State {
  std::string path;
  Zip archive;
  std::vector<zip_uint64_t> entries;
};

NumpyArchive::NumpyArchive(const std::string& path)
    : state_(std::make_unique<State>(State{path, open_zip(path, path, ZIP_RDONLY), {}})) {
  const auto entries = zip_get_num_entries(state_->archive.get(), 0);
  for (zip_int64_t i = 0; i < entries; ++i) {
    const char* name = zip_get_name(state_->archive.get(), i, 0);
    check(name != nullptr, path, ": cannot list the NumPy archive");
    std::string text = name;
    if (!text.ends_with(".npy")) continue;
    names_.push_back(text.substr(0, text.size() - 4));
    state_->entries.push_back(i);
  }
  check(!names_.empty(), path, ": holds no arrays (.npy)");
}

NumpyArchive::~NumpyArchive() = default;

NumpyArray NumpyArchive::open(const std::string& name) const {
  const auto where = state_->path + ":" + name;
  const auto found = std::find(names_.begin(), names_.end(), name);
  check(found != names_.end(), where, ": there is no such array; the archive holds ", c10::Join(", ", names_));
  const auto index = state_->entries[found - names_.begin()];
  zip_stat_t status;
  auto* archive = state_->archive.get();
  check(zip_stat_index(archive, index, 0, &status) == 0, where, ": cannot be looked at: ", zip_strerror(archive));
  const double memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  // Deflate makes at best one byte of 1032: more is a lie.
  check(static_cast<double>(status.size) < memory / 2 && status.size / 1100 <= status.comp_size + 1, where, ": claims ",
        status.size, " bytes, too many to be true or to fit into memory");
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen_index(archive, index, 0), zip_fclose);
  check(file != nullptr, where, ": cannot be unpacked: ", zip_strerror(archive));
  std::string bytes(status.size, '\0');
  for (size_t filled = 0; filled < bytes.size();) {
    const auto read = zip_fread(file.get(), bytes.data() + filled, std::min<size_t>(bytes.size() - filled, 1 << 20));
    check(read > 0, where, ": cannot be unpacked: ", read < 0 ? zip_file_strerror(file.get()) : "it is truncated");
    filled += read;
  }
  char one_more;
  check(zip_fread(file.get(), &one_more, 1) == 0, where,
        ": cannot be unpacked: ", zip_file_strerror(file.get()));  // checks the CRC
  const auto length = static_cast<int64_t>(bytes.size());
  return {std::make_unique<std::istringstream>(std::move(bytes)), length, where};
}

void write_archive(const std::string& path, const std::vector<std::pair<std::string, std::string>>& names_and_files) {
  DurableFile durable(path);
  auto archive = open_zip(durable.temporary(), path, ZIP_CREATE | ZIP_TRUNCATE);
  for (const auto& [name, file] : names_and_files) {
    auto* source = zip_source_file(archive.get(), file.c_str(), 0, -1);
    const bool added = source && zip_file_add(archive.get(), (name + ".npy").c_str(), source, ZIP_FL_ENC_UTF_8) >= 0;
    if (source && !added) zip_source_free(source);
    check(added, path, ": cannot add '", name, "': ", zip_strerror(archive.get()));
  }
  check(zip_close(archive.get()) == 0, path, ": cannot write the file: ", zip_strerror(archive.get()));
  (void)archive.release();  // closed
  durable.commit();
}

}  // namespace diffeo
