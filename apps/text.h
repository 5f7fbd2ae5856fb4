#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

namespace diffeo::apps {

using torch::Tensor;

/// A number in at most `digits` digits: "0.1235", "1.2e+06", "-".
std::string number(double value, int digits = 5);
/// 1234567 as "1 234 567".
std::string grouped(int64_t value);
/// Seconds as "0.4 s", "12 s", "3:05" or "2:03:05".
std::string duration(double seconds);

/// "float32" or "float64".
std::string name_of(torch::Dtype dtype);

/// A histogram of values (n), as `width` block characters, over their central 99 %.
std::string histogram(const Tensor& values, int width);
/// The values themselves, as a curve of at most `width` block characters.
std::string curve(const std::vector<double>& values, int width);

/// A table whose columns are as wide as their widest entry; those of `left` (one letter a column, 'l' or 'r') to the
/// left.
class Columns {
 public:
  explicit Columns(std::string alignment) : alignment_(std::move(alignment)) {}
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void print(const std::string& indent = "  ") const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace diffeo::apps
