#pragma once

#include <torch/types.h>

#include <string>

namespace diffeo::apps {

using torch::Tensor;

/// Writes a picture: pixels (H, W, C), uint8, C 1 (grey), 3 (red, green, blue) or 4 (with opacity). To a temporary file
/// that is renamed. Throws Error naming the file where it cannot be written.
void write_png(const std::string& file, const Tensor& pixels);

}  // namespace diffeo::apps
