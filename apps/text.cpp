#include "diffeo/apps/text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace diffeo::apps {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[128];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

/// Heights between 0 and 1 as block characters; only an exact 0 is left blank.
std::string blocks(const std::vector<double>& heights) {
  static const char* const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string text;
  for (const double height : heights)
    text += eighths[height > 0 ? std::clamp(static_cast<int>(std::ceil(height * 8)), 1, 8) : 0];
  return text;
}

/// Characters on the screen: bytes that do not continue a UTF-8 character.
size_t width_of(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

}  // namespace

std::string number(double value, int digits) { return std::isnan(value) ? "-" : format("%.*g", digits, value); }

std::string grouped(int64_t value) {
  auto text = std::to_string(value);
  for (auto at = static_cast<int64_t>(text.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) text.insert(at, 1, ' ');
  return text;
}

std::string duration(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  if (seconds < 9.95) return format("%.1f s", std::max(0.0, seconds));
  const auto whole = std::llround(seconds);
  if (whole < 60) return format("%lld s", whole);
  if (whole < 3600) return format("%lld:%02lld", whole / 60, whole % 60);
  return format("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string name_of(torch::Dtype dtype) { return dtype == torch::kFloat64 ? "float64" : "float32"; }

std::string histogram(const Tensor& values, int width) {
  auto sorted = std::get<0>(values.to(torch::kFloat64).flatten().sort());
  const auto n = sorted.numel();
  if (n == 0) return std::string(width, ' ');
  const auto* value = sorted.data_ptr<double>();
  const double lower = value[(n - 1) * 5 / 1000], upper = value[(n - 1) - (n - 1) * 5 / 1000];
  std::vector<double> counts(width, 0);
  for (int64_t i = 0; i < n; ++i) {
    if (value[i] < lower || value[i] > upper) continue;
    const double at = upper > lower ? (value[i] - lower) / (upper - lower) : 0.5;
    counts[std::min(width - 1, static_cast<int>(at * width))] += 1;
  }
  const double most = *std::max_element(counts.begin(), counts.end());
  for (auto& count : counts) count /= most;
  return blocks(counts);
}

std::string curve(const std::vector<double>& values, int width) {
  std::vector<double> heights;
  const auto n = static_cast<int>(values.size());
  for (int i = 0; i < std::min(n, width); ++i) heights.push_back(values[n <= width ? i : i * (n - 1) / (width - 1)]);
  double lowest = HUGE_VAL, highest = -HUGE_VAL;
  for (const double height : heights)
    if (std::isfinite(height)) lowest = std::min(lowest, height), highest = std::max(highest, height);
  for (auto& height : heights)
    height = !std::isfinite(height) ? 0 : highest > lowest ? 0.05 + 0.95 * (height - lowest) / (highest - lowest) : 0.5;
  return blocks(heights);
}

void Columns::print(const std::string& indent) const {
  std::vector<size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  for (const auto& row : rows_) {
    auto line = indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      line += (alignment_[i] == 'l' ? row[i] + space : space + row[i]) + "  ";
    }
    std::cout << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

}  // namespace diffeo::apps
