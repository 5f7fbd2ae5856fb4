#pragma once

#include <torch/types.h>

#include <functional>
#include <set>

#include "diffeo/apps/subcommands.h"
#include "diffeo/layers/base/options.h"

namespace diffeo::apps {

/// Options that every subcommand has.
struct CommonOptions {
  std::string device = "auto";
  int64_t threads = 0;
  uint64_t seed = 0;
  std::string dtype;
  static constexpr auto fields() {
    using O = CommonOptions;
    return std::tuple{optional("device", &O::device, "auto, cpu or cuda"),
                      optional("threads", &O::threads, "threads to compute with; 0: one for each core"),
                      optional("seed", &O::seed, "of all that is random; the same seed gives the same result"),
                      optional("dtype", &O::dtype, "float32 or float64; default: that of the model, else float32")};
  }
};

/// Makes a JSON value for an option of type T from the text of an argument. Throws Error naming what was expected.
template <class T>
Json json_from(const std::string& text);
Json integer_from(const std::string& text, bool may_be_negative);
Json number_from(const std::string& text);
Json boolean_from(const std::string& text);
Json any_from(const std::string& text);
std::vector<std::string> split(const std::string& text, char separator);

/// The arguments of one subcommand: what they are called, where their values go, and how `--help` shows them.
///
/// Options come in three ways: one by one (`option`), as positional arguments (`argument`), or all fields of a struct
/// that describes itself (`options`): `--batch-size` from `batch_size`. Each of them may also be a key of the JSON
/// object in `--config`, spelled either way; the command line wins.
class Command {
 public:
  /// `usage` is what follows "diffeo NAME"; each example is a line of shell with a comment.
  Command(std::string name, std::string summary, std::string usage, std::vector<std::string> examples);

  /// A required positional argument, or one that takes all the rest if T is a list.
  template <class T>
  void argument(const std::string& name, T& value, const std::string& help, bool required = true) {
    add_argument(make(name, value, help), required);
  }

  /// One option; `name` may end in a comma and a letter ("output,o"), `placeholder` stands for its value in the help.
  template <class T>
  void option(const std::string& name, T& value, const std::string& help, const std::string& placeholder = "") {
    auto made = make(name, value, help);
    if (!placeholder.empty()) made.placeholder = placeholder;
    groups_.back().options.push_back(std::move(made));
  }

  /// An option for each field of a struct that describes itself, under a heading, except for those in `without`.
  template <Described O>
  void options(const std::string& heading, O& values, const std::set<std::string>& without = {}) {
    groups_.push_back({heading, {}});
    std::apply(
        [&](const auto&... field) {
          const auto add = [&](const auto& f) {
            if (!without.contains(f.name)) option(f.name, values.*(f.member), f.help);
          };
          (add(field), ...);
        },
        O::fields());
  }

  /// Reads arguments and config file into the values. False if only help was asked for; it has been printed then.
  /// Throws Error for unknown options (with the nearest one), missing arguments and values of a wrong kind.
  /// Sets the number of threads and torch's seed, unless help was asked for.
  bool parse(const Arguments& arguments);

  /// Whether the user gave this option, on the command line or in the config file.
  bool given(const std::string& name) const { return given_.contains(name); }
  /// Throws Error unless the user gave the option.
  void require(const std::string& name, const std::string& example) const;

  const CommonOptions& common() const { return common_; }
  torch::Device device() const;                      ///< throws Error if there is no GPU where one is asked for
  torch::Dtype dtype(torch::Dtype otherwise) const;  ///< throws Error if it is neither float32 nor float64

 private:
  struct Option {
    std::string name;  ///< as in a spec: batch_size
    char letter = 0;
    std::string placeholder, standard, help;
    bool flag = false, list = false;
    std::function<Json(const std::string&)> from_text;
    std::function<void(const Json&, const std::string& where)> set;
    std::string spelled() const;  ///< as on the command line: batch-size
  };
  struct Group {
    std::string heading;
    std::vector<Option> options;
  };
  struct Argument {
    Option option;
    bool required;
  };

  template <class T>
  static Option make(const std::string& name, T& value, const std::string& help);
  void add_argument(Option option, bool required);
  void read_config(const std::string& file);
  const Option* find(const std::string& name) const;
  void print_help() const;

  std::string name_, summary_, usage_;
  std::vector<std::string> examples_;
  std::vector<Argument> arguments_;
  std::vector<Group> groups_;
  std::set<std::string> given_;
  CommonOptions common_;
};

template <class T>
Json json_from(const std::string& text) {
  if constexpr (std::same_as<T, bool>)
    return boolean_from(text);
  else if constexpr (std::integral<T>)
    return integer_from(text, std::is_signed_v<T>);
  else if constexpr (std::floating_point<T>)
    return number_from(text);
  else if constexpr (std::same_as<T, std::string>)
    return text;
  else if constexpr (is_vector<T>::value) {
    Json list = Json::array();
    for (const auto& item : split(text, ',')) list.push_back(json_from<typename T::value_type>(item));
    return list;
  } else
    return any_from(text);
}

/// What stands for a value of type T in the help.
template <class T>
std::string placeholder_for() {
  if constexpr (std::integral<T>)
    return "N";
  else if constexpr (std::floating_point<T>)
    return "X";
  else if constexpr (std::same_as<T, std::string>)
    return "TEXT";
  else if constexpr (is_vector<T>::value)
    return "A,B,...";
  else
    return "JSON";
}

template <class T>
Command::Option Command::make(const std::string& name, T& value, const std::string& help) {
  Option option;
  const auto comma = name.find(',');
  option.name = name.substr(0, comma);
  if (comma != std::string::npos) option.letter = name.at(comma + 1);
  option.help = help;
  option.flag = std::same_as<T, bool>;
  option.list = is_vector<T>::value;
  option.placeholder = placeholder_for<T>();
  // What is empty or zero means "none" or "chosen for you", which the help text says in words.
  if (!(value == T{})) option.standard = json_of(value).dump();
  option.from_text = json_from<T>;
  option.set = [&value](const Json& json, const std::string& where) {
    if constexpr (std::unsigned_integral<T> && !std::same_as<T, bool>)
      if (json.is_number_integer() && !json.is_number_unsigned() && json.template get<int64_t>() < 0)
        throw SpecError(where, "expected an integer that is not negative, got " + json.dump());
    value = value_of<T>(json, where);
  };
  return option;
}

}  // namespace diffeo::apps
