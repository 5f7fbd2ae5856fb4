#include "diffeo/data/table_columns.h"

#include <charconv>
#include <optional>

namespace diffeo {
namespace {

/// Texts of an attribute: a list of strings, or one string that holds a JSON list or names between commas.
std::vector<std::string> texts_of(const Json& value) {
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const auto& item : value)
      if (item.is_string()) texts.push_back(item.get<std::string>());
  } else if (value.is_string()) {
    const auto text = value.get<std::string>();
    const auto json = Json::parse(text, nullptr, false);
    if (json.is_array()) return texts_of(json);
    for (size_t begin = 0; begin <= text.size();) {
      const auto end = std::min(text.find(',', begin), text.size());
      const auto first = text.find_first_not_of(' ', begin), last = text.find_last_not_of(' ', end - 1);
      texts.push_back(first < end ? text.substr(first, last + 1 - first) : "");
      begin = end + 1;
    }
  }
  return texts;
}

bool usable(const std::vector<std::string>& names, int64_t count) {
  return static_cast<int64_t>(names.size()) == count &&
         std::none_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); });
}

/// Strings of a dataset beside the table, if there is one of the right length.
std::vector<std::string> names_in(const hdf5::Object& root, const std::string& path, int64_t count) {
  if (!root.has(path)) return {};
  const auto object = root.open(path);
  if (!object.is_dataset() || object.shape() != hdf5::Shape{count}) return {};
  return object.type().kind == hdf5::Kind::string ? object.strings() : std::vector<std::string>{};
}

std::vector<std::string> names_of(const hdf5::Object& dataset, const hdf5::Object& root, int64_t count) {
  for (const auto* name : {"columns", "column_names", "feature_names", "names", "fields", "labels", "headers"})
    if (auto names = texts_of(dataset.attribute(name)); usable(names, count)) return names;
  const auto& path = dataset.path();
  const auto group = path.substr(0, path.rfind('/'));
  std::vector<std::string> beside{group + "/columns", "/columns"};
  // pandas, `to_hdf` with format "fixed": block0_values has its names in block0_items.
  if (path.ends_with("_values")) beside.insert(beside.begin(), path.substr(0, path.size() - 6) + "items");
  for (const auto& other : beside)
    if (auto names = names_in(root, other, count); usable(names, count)) return names;
  return {};
}

std::optional<int64_t> integer(const std::string& text) {
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// One word of a choice: a name, an index or a range.
std::vector<int64_t> chosen_by(const std::string& where, const std::vector<Column>& columns, const std::string& word) {
  const auto count = static_cast<int64_t>(columns.size());
  std::vector<int64_t> found;
  for (int64_t i = 0; i < count; ++i)
    if (columns[i].name == word) found.push_back(i);
  check(found.size() < 2, where, ": ", found.size(), " columns are named '", word,
        "'; choose one by its index: ", c10::Join(", ", found));
  if (found.size() == 1) return found;

  const auto bound = [&](const std::string& text, int64_t standard) {
    return text.empty() ? std::optional(standard) : integer(text);
  };
  if (const auto colon = word.find(':'); colon != std::string::npos) {
    auto begin = bound(word.substr(0, colon), 0), end = bound(word.substr(colon + 1), count);
    if (begin && end) {
      if (*begin < 0) *begin += count;
      if (*end < 0) *end += count;
      check(0 <= *begin && *begin < *end && *end <= count, where, ": the range '", word, "' holds none of its ", count,
            " columns, or goes beyond them");
      for (auto i = *begin; i < *end; ++i) found.push_back(i);
      return found;
    }
  } else if (auto index = integer(word)) {
    if (*index < 0) *index += count;
    check(0 <= *index && *index < count, where, ": no column ", word, "; it has ", count, ", counted from 0");
    return {*index};
  }
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  throw Error(c10::str(where, ": no column '", word, "'", suggestion(word, names), "; columns are ", listed(names)));
}

}  // namespace

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string listed(const std::vector<std::string>& names, size_t most) {
  const std::vector<std::string> first(names.begin(), names.begin() + std::min(most, names.size()));
  const auto text = c10::Join(", ", first);
  return names.size() <= most ? text : c10::str(text, ", ... (", names.size() - most, " more)");
}

std::vector<Column> columns_of(const hdf5::Object& dataset, const hdf5::Object& root, int64_t count, bool discrete) {
  const auto names = names_of(dataset, root, count);
  std::vector<Column> columns(count);
  for (int64_t i = 0; i < count; ++i) {
    auto& column = columns[i];
    column.discrete = discrete;
    if (!names.empty())
      column.name = names[i];
    else
      column.name = dataset.shape()->size() == 1 && count == 1 ? last_part(dataset.path()) : c10::str("x", i);
  }
  add_units(dataset, columns);
  const auto units = names_in(root, dataset.path().substr(0, dataset.path().rfind('/')) + "/units", count);
  for (size_t i = 0; i < units.size(); ++i) columns[i].unit = units[i];
  return columns;
}

void add_units(const hdf5::Object& object, std::vector<Column>& columns) {
  for (const auto* name : {"units", "unit", "units_json"}) {
    const auto value = object.attribute(name);
    if (value.is_null()) continue;
    const auto json = value.is_string() ? Json::parse(value.get<std::string>(), nullptr, false) : Json();
    if (json.is_object()) {
      for (auto& column : columns)
        if (const auto unit = json.find(column.name); unit != json.end() && unit->is_string()) column.unit = *unit;
      return;
    }
    const auto units = texts_of(json.is_array() ? json : value.is_string() ? Json::array({value}) : value);
    if (units.size() == columns.size()) {
      for (size_t i = 0; i < columns.size(); ++i) columns[i].unit = units[i];
    } else if (units.size() == 1) {
      for (auto& column : columns) column.unit = units[0];
    }
    return;
  }
}

std::vector<std::string> pandas_names(const hdf5::Object& dataset, const std::string& field) {
  const auto kind = dataset.attribute(field + "_kind");
  if (!kind.is_string()) return {};
  // Pickle's protocol 0 is text: a string is a line that begins with V (or aV, appended to the list).
  const auto text = kind.get<std::string>();
  std::vector<std::string> names;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto line = text.substr(begin, end - begin);
    if (line.starts_with("a")) line.erase(0, 1);
    if (line.starts_with("V")) names.push_back(line.substr(1));
    begin = end + 1;
  }
  return names;
}

std::vector<int64_t> choose_columns(const std::string& where, const std::vector<Column>& columns,
                                    const std::vector<std::string>& wanted) {
  std::vector<int64_t> chosen;
  if (wanted.empty())
    for (size_t i = 0; i < columns.size(); ++i) chosen.push_back(static_cast<int64_t>(i));
  std::vector<bool> taken(columns.size());
  for (const auto& word : wanted) {
    for (const auto index : chosen_by(where, columns, word)) {
      check(!taken[index], where, ": column '", columns[index].name, "' is chosen twice");
      taken[index] = true;
      chosen.push_back(index);
    }
  }
  return chosen;
}

}  // namespace diffeo
