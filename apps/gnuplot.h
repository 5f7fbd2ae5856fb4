#pragma once

#include <torch/types.h>

#include <string>

namespace diffeo::apps {

using torch::Tensor;

/// A picture drawn by the program gnuplot: a script with its data inside, run as a child process.
class Gnuplot {
 public:
  /// A picture of `width` x `height` pixels (72 to an inch in a PDF). The ending of the name, .png, .svg or .pdf,
  /// chooses the kind. Throws Error for another ending.
  Gnuplot(std::string file, int width, int height);

  /// Adds a line to the script.
  Gnuplot& operator<<(const std::string& line);
  /// Adds a table (n) or (n, m) that the script can plot by the name returned; a row of NaN becomes an empty line.
  std::string data(const Tensor& rows);
  /// Draws to a temporary file and renames it. Throws Error if gnuplot is missing or finds a mistake.
  void draw();

 private:
  std::string file_, part_, script_;
  int tables_ = 0;
};

/// Text that gnuplot's enhanced mode shows as it is, in quotes.
std::string quoted(const std::string& text);

}  // namespace diffeo::apps
