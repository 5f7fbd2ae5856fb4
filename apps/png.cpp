#include "diffeo/apps/png.h"

#include <png.h>

#include "diffeo/data/durable_file.h"
#include "diffeo/layers/base/error.h"

namespace diffeo::apps {

void write_png(const std::string& file, const Tensor& pixels) {
  check(pixels.dim() == 3 && pixels.scalar_type() == torch::kUInt8 && pixels.numel() > 0, file,
        ": expected pixels (H, W, C) of uint8, got ", pixels.scalar_type(), " ", pixels.sizes());
  const auto channels = pixels.size(2);
  check(channels == 1 || channels == 3 || channels == 4, file, ": pictures have 1, 3 or 4 channels, got ", channels);
  constexpr int64_t most = 1 << 15;
  check(pixels.size(0) <= most && pixels.size(1) <= most, file, ": a picture of ", pixels.size(1), " x ",
        pixels.size(0), " pixels is too large; draw fewer images, or smaller ones");
  const auto bytes = pixels.cpu().contiguous();
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(bytes.size(1));
  image.height = static_cast<png_uint_32>(bytes.size(0));
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  DurableFile written(file);
  const auto row_bytes = static_cast<png_int_32>(bytes.size(1) * channels);
  if (!png_image_write_to_file(&image, written.temporary().c_str(), 0, bytes.data_ptr(), row_bytes, nullptr)) {
    const std::string problem = image.message;
    png_image_free(&image);
    throw Error(c10::str(file, ": cannot write the picture: ", problem));
  }
  written.commit();
}

}  // namespace diffeo::apps
