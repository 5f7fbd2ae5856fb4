#include "diffeo/apps/images.h"

namespace diffeo::apps {

std::optional<ImageRows> images_of_rows(const std::vector<int64_t>& image, const std::string& layout,
                                        const std::string& where, const std::vector<int64_t>& stored, int64_t columns) {
  check(image.empty() || image.size() == 3, "--image: expected C,H,W, got ", Json(image).dump());
  auto images = image.empty() ? image_rows(where, stored) : ImageRows{.shape = image};
  if (!images) return std::nullopt;
  if (!layout.empty()) images->layout = layout;
  check_choice("--layout", images->layout, {"nchw", "nhwc"});
  check(images->size() == columns, where, ": images of shape [", c10::Join(", ", images->shape), "] have ",
        images->size(), " values, but its rows have ", columns, " columns");
  return images;
}

ImageRows required(const std::optional<ImageRows>& images, const std::string& who) {
  check(images.has_value(), who, " does not say that its rows are images; give their shape with --image C,H,W");
  return *images;
}

}  // namespace diffeo::apps
