#include "diffeo/apps/command.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <boost/program_options.hpp>
#include <cerrno>
#include <cmath>
#include <iostream>
#include <sstream>

#include "diffeo/apps/output.h"

namespace diffeo::apps {
namespace {

namespace po = boost::program_options;

std::string with(char from, char to, std::string text) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

/// A value of JSON as one would write it on the command line: without quotes or brackets.
std::string plain(const std::string& json) {
  std::string text;
  for (const char c : json)
    if (c != '"' && c != '[' && c != ']') text += c;
  return text;
}

/// Prints `left` and, from column `indent` on, `text` wrapped at the terminal's width (100 where there is none).
void print_entry(const std::string& left, const std::string& text, size_t indent) {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 60;
  const size_t width = known ? std::min<size_t>(size.ws_col, 120) : 100;
  std::string line = "  " + left;
  line += std::string(line.size() + 1 < indent ? indent - line.size() : 2, ' ');
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (line.size() + word.size() > width && line.size() > indent) {
      std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
      line = std::string(indent, ' ');
    }
    line += word + ' ';
  }
  std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

Json integer_from(const std::string& text, bool may_be_negative) {
  const auto wrong = [&](const char* expected) { return Error(c10::str("expected ", expected, ", got '", text, "'")); };
  if (!may_be_negative && text.starts_with("-")) throw wrong("an integer that is not negative");
  char* end = nullptr;
  errno = 0;
  const bool is_signed = may_be_negative || text.empty();
  const Json value =
      is_signed ? Json(std::strtoll(text.c_str(), &end, 10)) : Json(std::strtoull(text.c_str(), &end, 10));
  if (!text.empty() && *end == 0 && errno == 0) return value;
  // 1e6 is an integer too.
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || number != std::floor(number) || !(std::abs(number) < 1e15))
    throw wrong("an integer");
  return static_cast<int64_t>(number);
}

Json number_from(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !std::isfinite(number)) throw Error(c10::str("expected a number, got '", text, "'"));
  return number;
}

Json boolean_from(const std::string& text) {
  if (text == "true" || text == "yes" || text == "1") return true;
  if (text == "false" || text == "no" || text == "0") return false;
  throw Error(c10::str("expected true or false, got '", text, "'"));
}

Json any_from(const std::string& text) {
  auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) throw Error(c10::str("expected JSON such as '{\"type\": \"normal\"}', got '", text, "'"));
  return json;
}

std::string Command::Option::spelled() const { return with('_', '-', name); }

Command::Command(std::string name, std::string summary, std::string usage, std::vector<std::string> examples)
    : name_(std::move(name)), summary_(std::move(summary)), usage_(std::move(usage)), examples_(std::move(examples)) {
  groups_.push_back({"options", {}});
}

void Command::add_argument(Option option, bool required) { arguments_.push_back({std::move(option), required}); }

const Command::Option* Command::find(const std::string& name) const {
  for (const auto& argument : arguments_)
    if (argument.option.name == name) return &argument.option;
  for (const auto& group : groups_)
    for (const auto& option : group.options)
      if (option.name == name) return &option;
  return nullptr;
}

void Command::require(const std::string& name, const std::string& example) const {
  check(given(name), "option --", with('_', '-', name), " is missing; say for example ", example);
}

bool Command::parse(const Arguments& arguments) {
  options("for every subcommand", common_);
  std::string config;
  bool help = false;
  option("config", config, "JSON object with any of these options; the command line wins", "FILE");
  option("help,h", help, "show this text");

  po::options_description known;
  po::positional_options_description positional;
  std::vector<std::string> spellings;
  const auto add = [&](const Option& option) {
    auto* value = po::value<std::vector<std::string>>();
    if (option.flag) value->zero_tokens();
    const auto names = option.letter ? option.spelled() + "," + option.letter : option.spelled();
    known.add_options()(names.c_str(), value, "");
    spellings.push_back(option.spelled());
  };
  for (const auto& group : groups_)
    for (const auto& option : group.options) add(option);
  const auto named = spellings;  // what to suggest: positional arguments are not written with dashes
  for (const auto& argument : arguments_) {
    add(argument.option);
    positional.add(argument.option.spelled().c_str(), argument.option.list ? -1 : 1);
  }

  std::map<std::string, std::vector<std::string>> found;
  try {
    const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    for (const auto& item :
         po::command_line_parser(arguments).options(known).positional(positional).style(style).run().options) {
      auto& values = found[with('-', '_', item.string_key)];
      values.insert(values.end(), item.value.begin(), item.value.end());
      if (item.value.empty()) values.push_back("true");
    }
  } catch (const po::unknown_option& error) {
    const auto word = error.get_option_name();
    const auto best = nearest(word.substr(std::min(word.find_first_not_of('-'), word.size())), named);
    throw Error("unknown option '" + word + "'" + (best.empty() ? "" : "; did you mean '--" + best + "'?") +
                " (--help lists all)");
  } catch (const po::too_many_positional_options_error&) {
    throw Error("too many arguments; usage: diffeo " + name_ + " " + usage_);
  } catch (const po::error& error) {
    throw Error(error.what());
  }

  if (found.contains("help")) {
    print_help();
    return false;
  }
  if (found.contains("config")) read_config(found["config"].back());
  for (const auto& [name, values] : found) {
    const auto& option = *find(name);
    bool positional_name = false;
    for (const auto& argument : arguments_) positional_name |= argument.option.name == name;
    const auto where = positional_name ? name : "--" + option.spelled();
    check(values.size() == 1 || option.list, where, " is given twice, as '", values.front(), "' and '", values.back(),
          "'");
    Json json;
    within(where, [&] {
      if (!option.list) return void(json = option.from_text(values.front()));
      json = Json::array();
      for (const auto& value : values)
        for (const auto& item : option.from_text(value)) json.push_back(item);
    });
    option.set(json, where);
    given_.insert(name);
  }
  for (const auto& argument : arguments_)
    check(!argument.required || given(argument.option.name), argument.option.name, " is missing (",
          argument.option.help, "); usage: diffeo ", name_, " ", usage_);

  check_choice("--device", common_.device, {"auto", "cpu", "cuda"});
  check_choice("--dtype", common_.dtype.empty() ? "float32" : common_.dtype, {"float32", "float64"});
  check(common_.threads >= 0, "--threads: expected 0 or more, got ", common_.threads);
  if (common_.threads > 0) at::set_num_threads(static_cast<int>(std::min<int64_t>(common_.threads, 1024)));
  at::manual_seed(common_.seed);
  return true;
}

void Command::read_config(const std::string& file) {
  const auto json = read_json(file);
  check(json.is_object(), file, ": expected a JSON object with options as its keys");
  std::vector<std::string> known;
  for (const auto& argument : arguments_) known.push_back(argument.option.name);
  for (const auto& group : groups_)
    for (const auto& option : group.options)
      if (option.name != "help" && option.name != "config") known.push_back(option.name);
  for (const auto& [key, value] : json.items()) {
    const auto name = with('-', '_', key);
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(c10::str(file, ": unknown key '", key, "'", suggestion(name, known), " (diffeo ", name_,
                           " --help lists all)"));
    find(name)->set(value, file + ": " + key);
    given_.insert(name);
  }
}

torch::Device Command::device() const {
  if (common_.device == "cpu") return torch::kCPU;
  if (at::hasCUDA()) return torch::kCUDA;
  check(common_.device == "auto",
        "--device cuda: no GPU can be used here (is this a build with DIFFEO_CUDA, and does "
        "nvidia-smi see one?); --device cpu works everywhere");
  return torch::kCPU;
}

torch::Dtype Command::dtype(torch::Dtype otherwise) const {
  if (common_.dtype.empty()) return otherwise;
  return common_.dtype == "float64" ? torch::kFloat64 : torch::kFloat32;
}

void Command::print_help() const {
  std::cout << "diffeo " << name_ << ": " << summary_ << "\n\nusage: diffeo " << name_ << ' ' << usage_
            << "\n\nexamples:\n";
  for (const auto& example : examples_) std::cout << "  " << example << '\n';
  const size_t indent = 34;
  if (!arguments_.empty()) std::cout << "\narguments:\n";
  for (const auto& argument : arguments_) print_entry(argument.option.name, argument.option.help, indent);
  for (const auto& group : groups_) {
    if (group.options.empty()) continue;
    std::cout << '\n' << group.heading << ":\n";
    for (const auto& option : group.options) {
      auto left = "--" + option.spelled();
      if (option.letter) left = std::string("-") + option.letter + ", " + left;
      if (!option.flag) left += " " + option.placeholder;
      auto text = option.help;
      if (!option.standard.empty() && !option.flag) text += " (default " + plain(option.standard) + ")";
      print_entry(left, text, indent);
    }
  }
}

}  // namespace diffeo::apps
