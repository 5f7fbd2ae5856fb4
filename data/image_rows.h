#pragma once

#include <optional>

#include "diffeo/data/dataset.h"
#include "diffeo/layers/base/options.h"

namespace diffeo {

/// How images lie in flat rows (N, D).
struct ImageRows {
  std::vector<int64_t> shape;   ///< C, H, W; D = C H W
  std::string layout = "nchw";  ///< nchw (channel after channel) or nhwc (pixel after pixel)

  bool operator==(const ImageRows&) const = default;
  static constexpr auto fields() {
    using O = ImageRows;
    return std::tuple{required("shape", &O::shape, "[C, H, W]"), optional("layout", &O::layout, "nchw or nhwc")};
  }

  int64_t size() const;
  /// The shape as tables state it beside rows of this layout.
  std::vector<int64_t> stored() const;
  /// Rows (N, D) as pixels (N, H, W, C).
  Tensor pixels(const Tensor& rows) const;
  /// For each number of a row the one that stands in its place in the mirrored image, left for right: (D), int64.
  Tensor mirrored() const;
};

/// What a stored shape of an image means: [H, W], [H, W, C] or [C, H, W], with C the one of first and last that is 1
/// to 4. Empty if it is no image. Throws Error beginning with `where` if either may be C, or neither.
std::optional<ImageRows> image_rows(const std::string& where, const std::vector<int64_t>& stored);

/// The same dataset where, in shuffled epochs, each image is mirrored with probability 1/2, by seed and epoch.
DatasetPtr flipped(DatasetPtr rows, const ImageRows& images);

}  // namespace diffeo
