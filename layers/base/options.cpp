#include "diffeo/layers/base/options.h"

#include <numeric>

namespace diffeo {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  size_t least = word.size() / 3 + 2;
  for (const auto& candidate : known) {
    const bool prefix = word.size() >= 3 && candidate.starts_with(word);
    const size_t distance = prefix ? 1 : edit_distance(word, candidate);
    if (distance < least) least = distance, best = candidate;
  }
  return best;
}

std::string suggestion(const std::string& word, const std::vector<std::string>& known) {
  const auto best = nearest(word, known);
  return best.empty() ? "" : "; did you mean '" + best + "'?";
}

Json spec_from_text(const std::string& text) {
  const auto spelled = [](std::string word) {
    std::replace(word.begin(), word.end(), '-', '_');
    return word;
  };
  const auto colon = text.find(':');
  Json spec = {{"type", spelled(text.substr(0, colon))}};
  if (spec["type"] == "") throw SpecError("", "expected NAME or NAME:key=value,key=value, got '" + text + "'");
  if (colon == std::string::npos) return spec;
  std::vector<std::string> parts(1);
  int depth = 0;
  bool quoted = false;
  for (const char c : text.substr(colon + 1)) {
    if (c == '"') quoted = !quoted;
    if (!quoted) depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (c == ',' && depth == 0 && !quoted)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  for (const auto& part : parts) {
    const auto equals = part.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw SpecError(
          "", "expected " + text.substr(0, colon) + ":key=value,key=value, got '" + part + "' in '" + text + "'");
    const auto value = part.substr(equals + 1);
    const auto json = Json::parse(value, nullptr, /*allow_exceptions=*/false);
    spec[spelled(part.substr(0, equals))] = json.is_discarded() ? Json(value) : json;
  }
  return spec;
}

int64_t at_least(int64_t least, const std::string& field, int64_t value) {
  if (value < least) throw SpecError(field, c10::str("must be at least ", least, ", got ", value));
  return value;
}

void check_choice(const std::string& field, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
  throw SpecError(field, c10::str("unknown value '", value, "'", suggestion(value, allowed), "; allowed are ",
                                  c10::Join(", ", allowed)));
}

}  // namespace diffeo
