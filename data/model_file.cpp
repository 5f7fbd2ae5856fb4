// A model file is an HDF5 file whose user block, the 512 bytes that HDF5 leaves to us, is text:
//
//   diffeo model file
//   version 1
//   length 123456      bytes of the whole file
//   crc32 89abcdef     of all that follows the user block
//
// So a damaged file is told from a sound one before HDF5 looks at it, and a newer one before anything is read. Inside:
// the root attribute `diffeo_model` (the version again, for other programs), JSON texts /spec, /columns,
// /context_columns, /metadata, /history and /training, and the tensors of `state` and `training_state` as datasets
// below the groups of these names, whose order is in /names/state and /names/training_state.
#include "diffeo/data/model_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <sys/stat.h>
#include <zlib.h>

#include <fstream>
#include <sstream>

#include "diffeo/data/durable_file.h"
#include "diffeo/data/hdf5.h"
#include "diffeo/layers/base/system_error.h"

namespace diffeo {
namespace {

constexpr int64_t header_bytes = 512;
const std::string magic = "diffeo model file\n";

struct Header {
  int64_t version = 0, length = 0;
  uint32_t checksum = 0;
};

std::string text_of(const Header& header) {
  char checksum[16];
  std::snprintf(checksum, sizeof(checksum), "%08x", header.checksum);
  auto text = c10::str(magic, "version ", header.version, "\nlength ", header.length, "\ncrc32 ", checksum, "\n");
  text.resize(header_bytes, '\0');
  return text;
}

/// The header of a file of this version or an older one; throws Error if there is none.
Header read_header(const std::string& path, std::ifstream& file) {
  std::string text(header_bytes, '\0');
  file.read(text.data(), header_bytes);
  check(file.gcount() == header_bytes && text.starts_with(magic), path, ": not a model file of diffeo");
  Header header;
  std::string word;
  std::istringstream lines(text.substr(magic.size()));
  lines >> word >> header.version;
  const bool known = word == "version" && lines && header.version > 0;
  check(!known || header.version <= ModelFile::current_version, path,
        ": was written by a newer diffeo: its format has ", "version ", header.version, ", this program reads up to ",
        ModelFile::current_version, "; update diffeo");
  lines >> word >> header.length >> word >> std::hex >> header.checksum;
  check(known && lines && text == text_of(header), path, ": the header of the model file is damaged");
  return header;
}

/// CRC-32 and length of a file from the end of the header on.
std::pair<uint32_t, int64_t> checksum_of(std::ifstream& file) {
  std::vector<char> block(1 << 20);
  auto checksum = crc32_z(0, nullptr, 0);
  int64_t length = header_bytes;
  file.clear();
  file.seekg(header_bytes);
  while (file.read(block.data(), static_cast<std::streamsize>(block.size())), file.gcount() > 0) {
    checksum = crc32_z(checksum, reinterpret_cast<const Bytef*>(block.data()), file.gcount());
    length += file.gcount();
  }
  return {static_cast<uint32_t>(checksum), length};
}

void write_header(const std::string& path, const std::string& shown_as) {
  std::ifstream written(path, std::ios::binary);
  const auto [checksum, length] = checksum_of(written);
  const auto text = text_of({.version = ModelFile::current_version, .length = length, .checksum = checksum});
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(text.data(), header_bytes).flush();
  check_system(file.good(), shown_as, ": cannot write the file");
}

Json json_of_columns(const std::vector<Column>& columns) {
  Json json = Json::array();
  for (const auto& column : columns)
    json.push_back({{"name", column.name}, {"unit", column.unit}, {"discrete", column.discrete}});
  return json;
}

std::vector<Column> columns_of_json(const Json& json, const std::string& where) {
  std::vector<Column> columns;
  try {
    for (const auto& item : json) columns.push_back({item.at("name"), item.at("unit"), item.at("discrete")});
  } catch (const Json::exception& error) {
    throw Error(c10::str(where, ": does not describe columns: ", error.what()));
  }
  return columns;
}

void write_json(hdf5::Object& root, const std::string& name, const Json& json) {
  // Bytes that are no UTF-8 (a file name, say) must not keep a model from being saved.
  root.write_string(name, json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json read_json(const hdf5::Object& root, const std::string& name) {
  const auto object = root.open(name);
  const auto texts = object.strings();
  check(texts.size() == 1, object.where(), ": expected one text, got ", texts.size());
  const auto json = Json::parse(texts[0], nullptr, false);
  check(!json.is_discarded(), object.where(), ": is not JSON");
  return json;
}

void write_tensors(hdf5::Object& root, const std::string& group, const NamedTensors& tensors) {
  root.make_group(group);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    const auto path = group + "/" + name;
    check(!name.empty() && tensor.defined(), root.file(), ":", path, ": there is no tensor to write");
    const auto values = tensor.detach().to(torch::kCPU).contiguous();
    auto dataset = root.make_dataset(path, values.scalar_type(),
                                     {.shape = values.sizes().vec(), .growing = false, .chunk = {}, .deflate = 0});
    dataset.write(values.scalar_type(), hdf5::Shape(values.dim()), values.sizes().vec(), values.data_ptr());
    names.push_back(name);
  }
  root.write_strings("names" + group, names);
}

Tensor read_tensor(const hdf5::Object& dataset) {
  const auto where = dataset.where();
  check(dataset.is_dataset(), where, ": is not a dataset");
  const auto element = dataset.type().scalar_type();
  const auto shape = dataset.shape();
  check(element.has_value() && shape.has_value(), where, ": holds ", dataset.type().name(), ", not a tensor");
  // Tensors lie uncompressed: what the file cannot hold is not worth allocating.
  int64_t bytes = dataset.type().bytes;
  for (const auto size : *shape) check(!__builtin_mul_overflow(bytes, size, &bytes), where, ": absurd shape");
  check(dataset.storage().bytes >= bytes, where, ": holds less than its shape says");
  auto tensor = at::empty(*shape, torch::TensorOptions(*element));
  dataset.read({.begin = hdf5::Shape(shape->size()), .count = *shape, .leaves = {}, .element = *element},
               tensor.data_ptr());
  return tensor;
}

NamedTensors read_tensors(const hdf5::Object& root, const std::string& group) {
  NamedTensors tensors;
  for (const auto& name : root.open("names" + group).strings())
    tensors.emplace_back(name, read_tensor(root.open(group + "/" + name)));
  return tensors;
}

ModelFile read_version_1(const hdf5::Object& root) {
  ModelFile model;
  model.version = 1;
  model.spec = read_json(root, "spec");
  model.state = read_tensors(root, "/state");
  model.columns = columns_of_json(read_json(root, "columns"), root.file() + ":/columns");
  model.context_columns = columns_of_json(read_json(root, "context_columns"), root.file() + ":/context_columns");
  model.metadata = read_json(root, "metadata");
  model.history = read_json(root, "history");
  model.training = read_json(root, "training");
  model.training_state = read_tensors(root, "/training_state");
  return model;
}

}  // namespace

void write_model(const std::string& path, const ModelFile& model) {
  DurableFile durable(path);
  {
    hdf5::NewFile file(durable.temporary(), path, header_bytes, true);
    {
      auto root = file.root();
      root.set_attribute("diffeo_model", ModelFile::current_version);
      write_json(root, "spec", model.spec);
      write_tensors(root, "/state", model.state);
      write_json(root, "columns", json_of_columns(model.columns));
      write_json(root, "context_columns", json_of_columns(model.context_columns));
      write_json(root, "metadata", model.metadata);
      write_json(root, "history", model.history);
      write_json(root, "training", model.training);
      write_tensors(root, "/training_state", model.training_state);
    }
    file.close();
  }
  write_header(durable.temporary(), path);
  durable.commit();
}

ModelFile read_model(const std::string& path) {
  struct stat status {};
  check_system(::stat(path.c_str(), &status) == 0, path, ": cannot open the file");
  check(S_ISREG(status.st_mode), path, ": cannot open the file: it is not a regular file");
  std::ifstream file(path, std::ios::binary);
  check_system(file.good(), path, ": cannot open the file");
  const auto header = read_header(path, file);
  const auto [checksum, length] = checksum_of(file);
  check(length == header.length, path, ": is ", length < header.length ? "truncated" : "damaged", ": it has ", length,
        " bytes where ", header.length, " were written");
  check(checksum == header.checksum, path, ": is damaged: its checksum is wrong");
  const auto root = hdf5::open_file(path);
  switch (header.version) {
    case 1:
      return read_version_1(root);
    default:
      throw Error(c10::str(path, ": format version ", header.version, " is not known"));
  }
}

bool is_model_file(const std::string& path) {
  std::string start(magic.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(start.data(), static_cast<std::streamsize>(start.size()))) return false;
  if (start == magic) return true;
  try {
    return !hdf5::open_file(path).attribute("diffeo_model").is_null();  // the header was lost, by h5repack say
  } catch (const Error&) {
    return false;
  }
}

}  // namespace diffeo
