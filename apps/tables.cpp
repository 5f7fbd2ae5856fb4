#include "diffeo/apps/tables.h"

#include "diffeo/data/image_rows.h"

namespace diffeo::apps {

std::string object_in(const std::string& file, const std::string& given, const std::vector<std::string>& preferred) {
  if (!given.empty()) return given;
  const auto tables = tables_in(file);
  std::vector<std::string> names;
  for (const auto& table : tables) names.push_back(table.object);
  for (const auto& name : preferred)
    if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  check(!names.empty(), file, ": holds no table of numbers");
  check(names.size() == 1, file, ": holds several tables; choose one with --object or --x: ", c10::Join(", ", names));
  return names.front();
}

std::vector<std::string> names_of(const std::vector<Column>& wanted, const std::vector<Column>& there) {
  std::vector<std::string> names;
  for (const auto& column : wanted) names.push_back(column.name);
  if (wanted.size() != there.size()) return names;
  for (size_t i = 0; i < there.size(); ++i)
    if (there[i].name != c10::str("x", i)) return names;
  return {};
}

std::vector<Column> columns_for(int64_t count, std::vector<Column> known) {
  for (auto i = static_cast<int64_t>(known.size()); i < count; ++i)
    known.push_back({.name = c10::str("x", i), .unit = "", .discrete = false});
  return known;
}

void write_image_shape(TableWriter& writer, const std::string& object, const ModelFile& model,
                       const std::string& where) {
  if (!model.metadata.contains("image")) return;
  writer.attribute(object, "image_shape",
                   read<ImageRows>(model.metadata["image"], where + ": metadata/image").stored());
}

}  // namespace diffeo::apps
