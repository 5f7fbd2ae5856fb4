#include "diffeo/data/csv.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <csv.h>

#include <charconv>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "diffeo/data/durable_file.h"
#include "diffeo/data/table_columns.h"
#include "diffeo/data/table_reader.h"
#include "diffeo/layers/base/system_error.h"

namespace diffeo {
namespace {

constexpr int64_t block_values = 1 << 18;  ///< numbers that are handled at once
constexpr size_t longest_line = size_t{64} << 20;

using Fields = std::vector<std::string>;

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") + 1 - first);
}

bool is_missing(const std::string& field) {
  static const std::set<std::string> words{"", "NA", "N/A", "na", "n/a", "nan", "NaN", "NAN", "null", "NULL", "?"};
  return words.contains(field);
}

std::optional<double> number(const std::string& field) {
  double value = 0;
  const auto* begin = field.data() + (field.size() > 1 && field[0] == '+' && field[1] != '-');
  const auto* end = field.data() + field.size();
  const auto [stop, problem] = std::from_chars(begin, end, value);
  if (problem != std::errc() || stop != end || std::isnan(value)) return std::nullopt;
  return value;
}

bool is_word(const std::string& field) { return !is_missing(field) && !number(field); }

Fields split_at_blanks(const std::string& line) {
  std::istringstream words(line);
  Fields fields;
  for (std::string word; words >> word;) fields.push_back(word);
  return fields;
}

/// The character between fields; a blank stands for any run of blanks.
char separator_of(const std::string& path, const std::string& option) {
  static const std::map<std::string, char> known{{"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}, {"space", ' '},
                                                 {",", ','},     {";", ';'},         {"\t", '\t'},  {" ", ' '}};
  if (const auto found = known.find(option); found != known.end()) return found->second;
  check(option == "auto", "separator: unknown value '", option, "'; allowed are auto, comma, semicolon, tab, space");
  // The first of these that the first line of fields holds outside of quotes.
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (trimmed(line).empty() || line[0] == '#') continue;
    bool quoted = false;
    std::string outside;
    for (const char c : line)
      if (c == '"')
        quoted = !quoted;
      else if (!quoted)
        outside += c;
    for (const char candidate : {'\t', ';', ','})
      if (outside.find(candidate) != std::string::npos) return candidate;
    return trimmed(outside).find(' ') != std::string::npos ? ' ' : ',';
  }
  return ',';
}

/// Hands over the rows of a text file one by one, with the number of the line that each ends in.
class RowParser {
 public:
  using Row = std::function<void(const Fields& fields, int64_t line)>;

  RowParser(std::string path, char separator) : path_(std::move(path)), separator_(separator) {}

  void parse(const Row& row) {
    std::ifstream file(path_, std::ios::binary);
    check_system(file.good(), path_, ": cannot open the file");
    row_ = &row, line_ = 0, fields_.clear();
    if (csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI | CSV_APPEND_NULL) != 0)
      throw Error(path_ + ": the parser cannot be made");
    const std::unique_ptr<csv_parser, void (*)(csv_parser*)> closing(&parser_, csv_free);
    csv_set_delim(&parser_, static_cast<unsigned char>(separator_));
    bool quoted = false, data = false;
    for (std::string line; std::getline(file, line);) {
      ++line_;
      check(line.size() < longest_line, path_, ": line ", line_, ": is longer than ", longest_line,
            " bytes; this is no text table");
      check(line.find('\0') == std::string::npos, path_, ": line ", line_,
            ": holds a zero byte; this is no text table");
      if (line_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
      if (!quoted && line.starts_with("#")) {
        if (!data) comment_ = line.substr(1);
        continue;
      }
      data = true;
      if (separator_ == ' ') {
        if (auto fields = split_at_blanks(line); !fields.empty()) row(fields, line_);
        continue;
      }
      line += '\n';
      quoted ^= std::count(line.begin(), line.end(), '"') % 2 == 1;
      feed(line);
    }
    if (csv_fini(&parser_, add_field, end_row, this) != 0)
      throw Error(c10::str(path_, ": line ", line_, ": a quoted field is not closed"));
    if (problem_) std::rethrow_exception(problem_);
  }

  /// The last comment before the first row: perhaps the header, as numpy.savetxt writes it.
  const std::string& comment() const { return comment_; }

 private:
  void feed(const std::string& text) {
    if (csv_parse(&parser_, text.data(), text.size(), add_field, end_row, this) != text.size())
      throw Error(c10::str(path_, ": line ", line_, ": ", csv_strerror(csv_error(&parser_))));
    if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
  }

  static void add_field(void* text, size_t size, void* self) {
    static_cast<RowParser*>(self)->fields_.emplace_back(static_cast<const char*>(text), size);
  }

  /// Called from C: an exception waits until the parser has returned.
  static void end_row(int, void* self) {
    auto& parser = *static_cast<RowParser*>(self);
    try {
      if (!parser.problem_) (*parser.row_)(parser.fields_, parser.line_);
    } catch (...) {
      parser.problem_ = std::current_exception();
    }
    parser.fields_.clear();
  }

  std::string path_, comment_;
  char separator_;
  csv_parser parser_{};
  const Row* row_ = nullptr;
  Fields fields_;
  int64_t line_ = 0;
  std::exception_ptr problem_;
};

/// What has to be known of a text table before its rows can be written.
struct Plan {
  std::vector<Column> columns;  ///< all of the file
  bool header = false;          ///< the first row is one
  std::vector<int64_t> chosen;
  std::map<int64_t, std::map<std::string, int64_t>> categories;  ///< codes of the words of a column
};

std::vector<Column> named(const Fields& names) {
  std::vector<Column> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto name = hdf5::valid_utf8(trimmed(names[i]));
    columns.push_back({.name = name.empty() ? c10::str("x", i) : name, .unit = {}, .discrete = false});
  }
  return columns;
}

/// Looks at the first row, and at all of them where words have to be numbered.
Plan plan_of(const std::string& path, RowParser& parser, const CsvOptions& options) {
  check(options.header == "auto" || options.header == "yes" || options.header == "no", "header: unknown value '",
        options.header, "'; allowed are auto, yes, no");
  struct Enough {};
  Plan plan;
  bool first = true;
  std::map<int64_t, std::set<std::string>> words;
  std::vector<int64_t> categorical;
  const bool everywhere = options.categorical == std::vector<std::string>{"all"};
  const auto look = [&](const Fields& fields, int64_t) {
    if (std::exchange(first, false)) {
      plan.header =
          options.header == "yes" ||
          (options.header == "auto" &&
           std::all_of(fields.begin(), fields.end(),
                       [](const std::string& field) { return !number(trimmed(field)); }) &&
           std::any_of(fields.begin(), fields.end(), [](const auto& field) { return is_word(trimmed(field)); }));
      const auto comment = split_at_blanks(parser.comment());
      if (plan.header)
        plan.columns = named(fields);
      else if (comment.size() == fields.size())
        plan.columns = named(comment);
      else
        plan.columns = named(Fields(fields.size()));
      plan.chosen = choose_columns(path, plan.columns, options.columns);
      if (!everywhere && !options.categorical.empty())
        categorical = choose_columns(path, plan.columns, options.categorical);
      else if (everywhere)
        categorical = plan.chosen;
      if (plan.header) return;
    }
    if (categorical.empty()) throw Enough{};
    for (const auto index : categorical) {
      if (index >= static_cast<int64_t>(fields.size())) continue;  // told of when the rows are read
      const auto field = trimmed(fields[index]);
      if (everywhere ? is_word(field) : !is_missing(field)) words[index].insert(hdf5::valid_utf8(field));
    }
  };
  try {
    parser.parse(look);
  } catch (const Enough&) {
  }
  check(!first, path, ": holds no rows");
  // A column with words somewhere has words everywhere: numbers among them are words too.
  if (everywhere && !words.empty()) {
    std::vector<int64_t> with_words;
    for (const auto& [index, some] : words) with_words.push_back(index);
    auto again = options;
    again.categorical.clear();
    for (const auto index : with_words) again.categorical.push_back(std::to_string(index));
    return plan_of(path, parser, again);
  }
  for (const auto& [index, some] : words)
    for (const auto& word : some)
      plan.categories[index].emplace(word, static_cast<int64_t>(plan.categories[index].size()));
  return plan;
}

std::string categories_json(const Plan& plan) {
  Json json = Json::object();
  for (const auto& [index, codes] : plan.categories) {
    auto& names = json[plan.columns[index].name] = Json::array();
    for (const auto& [word, code] : codes) names.push_back(word);
  }
  return json.dump();
}

}  // namespace

int64_t csv_to_table(const std::string& csv, const std::string& file, const std::string& object, torch::Dtype dtype,
                     const CsvOptions& options) {
  RowParser parser(csv, separator_of(csv, options.separator));
  const auto plan = plan_of(csv, parser, options);
  std::vector<Column> columns;
  for (const auto index : plan.chosen) columns.push_back(plan.columns[index]);
  const auto width = static_cast<int64_t>(columns.size());

  TableWriter writer(file);
  writer.begin(object, columns, dtype);
  const auto capacity = std::max<int64_t>(1, block_values / width);
  auto block = at::empty({capacity, width}, at::kDouble);
  int64_t filled = 0, rows = 0;
  const auto flush = [&] {
    writer.append(block.narrow(0, 0, filled));
    rows += std::exchange(filled, 0);
  };
  bool header = plan.header;
  parser.parse([&](const Fields& fields, int64_t line) {
    if (std::exchange(header, false)) return;
    check(fields.size() == plan.columns.size(), csv, ": line ", line, ": has ", fields.size(), " fields, expected ",
          plan.columns.size());
    auto* out = block.data_ptr<double>() + filled * width;
    for (const auto index : plan.chosen) {
      const auto field = trimmed(fields[index]);
      const auto codes = plan.categories.find(index);
      const auto place = [&] { return c10::str(csv, ": line ", line, ", column '", plan.columns[index].name, "': "); };
      if (is_missing(field)) {
        check(options.missing, place(), field.empty() ? "nothing there" : c10::str("'", field, "'"),
              "; missing values are read as NaN with --missing");
        *out++ = std::numeric_limits<double>::quiet_NaN();
      } else if (codes != plan.categories.end()) {
        *out++ = static_cast<double>(codes->second.at(hdf5::valid_utf8(field)));
      } else {
        const auto value = number(field);
        check(value.has_value(), place(), "'", hdf5::valid_utf8(field.substr(0, 80)),
              "' is no number; words are numbered with --categorical");
        *out++ = *value;
      }
    }
    if (++filled == capacity) flush();
  });
  flush();
  check(rows > 0, csv, ": holds no rows");
  if (!plan.categories.empty()) writer.attribute(object, "categories_json", categories_json(plan));
  writer.finish();
  return rows;
}

int64_t table_to_csv(const TableSource& table, const std::string& csv, const CsvOptions& options) {
  const TableReader reader(table);
  const auto separator = options.separator == "auto" && csv.ends_with(".tsv") ? '\t'
                         : options.separator == "auto"                        ? ','
                                                                              : separator_of(csv, options.separator);
  DurableFile durable(csv);
  {
    std::ofstream file(durable.temporary(), std::ios::binary);
    std::string text;
    if (options.header != "no") {
      for (const auto& column : reader.columns()) {
        if (!text.empty()) text += separator;
        if (column.name.find_first_of(std::string("\"\n\r") + separator) == std::string::npos) {
          text += column.name;
        } else {
          std::string quoted(2 * column.name.size() + 2, '\0');
          quoted.resize(csv_write(quoted.data(), quoted.size(), column.name.data(), column.name.size()));
          text += quoted;
        }
      }
      text += '\n';
    }
    const auto width = static_cast<int64_t>(reader.columns().size());
    const bool single = reader.info().dtype.starts_with("float32") || reader.info().dtype.starts_with("float16");
    const auto step = std::max<int64_t>(1, block_values / width);
    char digits[64];
    for (int64_t begin = 0; begin < reader.rows(); begin += step) {
      const auto values = reader.read(begin, std::min(reader.rows(), begin + step), at::kDouble).contiguous();
      const auto* value = values.data_ptr<double>();
      for (int64_t row = 0; row < values.size(0); ++row) {
        for (int64_t i = 0; i < width; ++i, ++value) {
          if (i > 0) text += separator;
          const auto end = single ? std::to_chars(digits, digits + sizeof(digits), static_cast<float>(*value))
                                  : std::to_chars(digits, digits + sizeof(digits), *value);
          if (!std::isnan(*value))
            text.append(digits, end.ptr);
          else
            text += "nan";
        }
        text += '\n';
      }
      file << text;
      text.clear();
    }
    file << text;
    file.flush();
    check_system(file.good(), csv, ": cannot write the file");
  }
  durable.commit();
  return reader.rows();
}

}  // namespace diffeo
