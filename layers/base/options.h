#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "diffeo/layers/base/error.h"

namespace diffeo {

/// Specs are JSON objects that keep the order of their keys.
using Json = nlohmann::ordered_json;

/// A member of an options struct: its key in a spec, its meaning, and whether it may be left out.
template <class Owner, class T>
struct Field {
  const char* name;
  T Owner::*member;
  const char* help;
  bool required;
};
template <class O, class T>
constexpr Field<O, T> required(const char* name, T O::*member, const char* help) {
  return {name, member, help, true};
}
template <class O, class T>
constexpr Field<O, T> optional(const char* name, T O::*member, const char* help) {
  return {name, member, help, false};
}

/// A struct that describes itself: `static constexpr auto fields()` returns a tuple of Field.
template <class O>
concept Described = requires {
  O::fields();
};

/// One field in words, for `--help`, the generated docs and errors.
struct FieldHelp {
  std::string name, kind, standard, help;  ///< `standard` is the default as JSON, empty where a value is required
};

template <class T>
struct is_vector : std::false_type {};
template <class T>
struct is_vector<std::vector<T>> : std::true_type {};

/// What a spec has to give for a member of type T, in words.
template <class T>
std::string kind_of() {
  if constexpr (std::same_as<T, bool>)
    return "true or false";
  else if constexpr (std::integral<T>)
    return "an integer";
  else if constexpr (std::floating_point<T>)
    return "a number";
  else if constexpr (std::same_as<T, std::string>)
    return "a string";
  else if constexpr (is_vector<T>::value)
    return std::string("a list, each item ").append(kind_of<typename T::value_type>());
  else
    return "an object";
}

template <Described O>
O read(const Json& json, const std::string& where = {});
template <Described O>
Json write(const O& options);

/// Converts one value of a spec. Throws SpecError at `where` if the type does not fit.
template <class T>
T value_of(const Json& json, const std::string& where) {
  const auto fits = [&](bool ok) {
    if (!ok) throw SpecError(where, c10::str("expected ", kind_of<T>(), ", got ", json.dump()));
  };
  if constexpr (std::same_as<T, Json>) {
    return json;
  } else if constexpr (Described<T>) {
    return read<T>(json, where);
  } else if constexpr (is_vector<T>::value) {
    fits(json.is_array());
    T values;
    for (size_t i = 0; i < json.size(); ++i)
      values.push_back(value_of<typename T::value_type>(json[i], where + "/" + std::to_string(i)));
    return values;
  } else {
    if constexpr (std::same_as<T, bool>)
      fits(json.is_boolean());
    else if constexpr (std::integral<T>)
      fits(json.is_number_integer());
    else if constexpr (std::floating_point<T>)
      fits(json.is_number());
    else
      fits(json.is_string());
    return json.get<T>();
  }
}

/// The known word nearest to `word` if it is near enough to be a slip of the pen, else empty.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

/// `; did you mean 'x'?` or an empty string.
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

/// Builds an options struct from a JSON object. Throws SpecError that names the place of every mistake:
/// unknown keys (with the known ones), missing required keys, values of a wrong type. The key `type` is skipped.
template <Described O>
O read(const Json& json, const std::string& where) {
  if (!json.is_object()) throw SpecError(where, c10::str("expected an object, got ", json.dump()));
  O options{};
  std::apply(
      [&](const auto&... field) {
        [[maybe_unused]] const auto one = [&](const auto& f) {
          using T = std::remove_cvref_t<decltype(options.*(f.member))>;
          if (const auto found = json.find(f.name); found != json.end())
            options.*(f.member) = value_of<T>(*found, where.empty() ? f.name : where + "/" + f.name);
          else if (f.required)
            throw SpecError(where, c10::str("'", f.name, "' is missing (", f.help, ")"));
        };
        std::vector<std::string> known{field.name...};
        for (const auto& item : json.items()) {
          if (item.key() == "type" || std::find(known.begin(), known.end(), item.key()) != known.end()) continue;
          throw SpecError(where, c10::str("unknown key '", item.key(), "'", suggestion(item.key(), known),
                                          "; known keys are ", c10::Join(", ", known)));
        }
        (one(field), ...);
      },
      O::fields());
  return options;
}

template <class T>
Json json_of(const T& value) {
  if constexpr (Described<T>)
    return write(value);
  else
    return Json(value);
}

/// The inverse of `read`: every field with its value, in the order of `fields()`.
template <Described O>
Json write(const O& options) {
  Json json = Json::object();
  std::apply([&](const auto&... field) { ((json[field.name] = json_of(options.*(field.member))), ...); }, O::fields());
  return json;
}

/// A spec of something registered: `{"type": type, ...fields}`.
template <Described O>
Json write(const std::string& type, const O& options) {
  Json json = {{"type", type}};
  json.update(write(options));
  return json;
}

/// The fields of O in words, in order.
template <Described O>
std::vector<FieldHelp> describe() {
  std::vector<FieldHelp> help;
  const O standard{};
  std::apply(
      [&](const auto&... field) {
        (help.push_back({field.name, kind_of<std::remove_cvref_t<decltype(standard.*(field.member))>>(),
                         field.required ? "" : json_of(standard.*(field.member)).dump(), field.help}),
         ...);
      },
      O::fields());
  return help;
}

/// A spec as it is said on a command line, `name` or `name:key=value,key=value`: `{"type": name, key: value, ...}`.
/// Values are JSON where they can be read as such (commas inside of brackets and quotes do not part), else text.
/// Hyphens in names and keys are underscores, as on the command line. Throws SpecError where there is no name, or a
/// part without `=`.
Json spec_from_text(const std::string& text);

/// `value`, which must be at least `least`. Throws SpecError at `field` otherwise.
int64_t at_least(int64_t least, const std::string& field, int64_t value);

/// Throws SpecError at `field` unless `value` is one of `allowed`.
void check_choice(const std::string& field, const std::string& value, const std::vector<std::string>& allowed);

}  // namespace diffeo
