#include "diffeo/data/genotypes.h"

#include <ATen/ops/cat.h>

#include "diffeo/data/hdf5.h"

namespace diffeo {
namespace {

/// Paths of an object in all stored splits, or its own.
std::vector<std::string> parts_of(const hdf5::Object& root, const std::string& object) {
  auto name = object.starts_with("/") ? object.substr(1) : object;
  if (name.starts_with("train/")) name = name.substr(6);
  std::vector<std::string> parts;
  for (const auto* split : {"/train/", "/valid/", "/validation/", "/val/", "/test/"})
    if (root.has(split + name)) parts.push_back(split + name);
  if (!parts.empty()) return parts;
  check(root.has("/" + name), root.file(), ": has neither /", name, " nor /train/", name);
  return {"/" + name};
}

/// A dataset of one value for each marker, beside the genotypes or at the root; none if there is none of this length.
std::optional<hdf5::Object> beside(const hdf5::Object& root, const std::string& object, const std::string& name,
                                   int64_t count) {
  for (const auto& path : {object.substr(0, object.rfind('/')) + "/" + name, "/" + name}) {
    if (!root.has(path)) continue;
    auto found = root.open(path);
    if (found.is_dataset() && found.shape() == hdf5::Shape{count}) return found;
  }
  return std::nullopt;
}

std::vector<std::string> chromosomes(const hdf5::Object& dataset) {
  if (dataset.type().kind == hdf5::Kind::string) return dataset.strings();
  std::vector<std::string> names;
  const auto values = read_table({dataset.file(), dataset.path(), {}}, torch::kFloat64).values;
  for (int64_t i = 0; i < values.size(0); ++i)
    names.push_back(std::to_string(static_cast<int64_t>(values[i][0].item<double>())));
  return names;
}

double scale_of(const hdf5::Object& root, const std::string& object) {
  for (const auto& value : {root.open(object).attribute("dosage_scale"), root.attribute("dosage_scale")})
    if (value.is_number()) return value.get<double>();
  return 1;
}

}  // namespace

Table read_all_rows(const std::string& file, const std::string& object, const std::vector<std::string>& columns,
                    torch::Dtype dtype) {
  const auto root = hdf5::open_file(file);
  Table all;
  std::vector<Tensor> pieces;
  for (const auto& path : parts_of(root, object)) {
    auto part = read_table({file, path, columns}, dtype, 0, -1, /*finite=*/false);
    if (pieces.empty())
      all = part;
    else
      check(part.columns == all.columns, file, ":", path, ": its columns are not those of the other splits");
    pieces.push_back(part.values);
  }
  all.values = at::cat(pieces);
  return all;
}

Genotypes read_genotypes(const std::string& file, const std::string& object, double scale) {
  check(scale >= 0, "dosage scale: must not be negative, got ", scale);
  const auto root = hdf5::open_file(file);
  const auto first = parts_of(root, object).front();
  auto table = read_all_rows(file, object, {}, torch::kFloat32);
  Genotypes genotypes;
  genotypes.dosages = table.values / (scale > 0 ? scale : scale_of(root, first));
  const auto outside = (genotypes.dosages < 0).logical_or(genotypes.dosages > 2).nonzero();
  if (outside.size(0) > 0) {
    const auto row = outside[0][0].item<int64_t>(), column = outside[0][1].item<int64_t>();
    throw Error(c10::str(
        file, ":", first, ": row ", row, ", marker '", table.columns[column].name, "': the dosage ",
        genotypes.dosages[row][column].item<float>(),
        " is outside of [0, 2]; a dosage scale (diffeo associate --dosage-scale) says what stands for one copy"));
  }
  const auto count = table.values.size(1);
  for (const auto& column : table.columns) genotypes.markers.push_back({column.name, "", 0});
  if (const auto dataset = beside(root, first, "chromosome", count)) {
    const auto names = chromosomes(*dataset);
    for (int64_t i = 0; i < count; ++i) genotypes.markers[i].chromosome = names[i];
  }
  if (const auto dataset = beside(root, first, "position", count)) {
    const auto values = read_table({file, dataset->path(), {}}, torch::kFloat64).values;
    for (int64_t i = 0; i < count; ++i)
      genotypes.markers[i].position = std::max<int64_t>(0, static_cast<int64_t>(values[i][0].item<double>()));
  }
  return genotypes;
}

}  // namespace diffeo
