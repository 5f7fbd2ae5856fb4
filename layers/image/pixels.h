#pragma once

#include "diffeo/layers/base/module.h"

namespace diffeo {

/// Images (*batch, C, H, W) as (*batch, H, W, C), contiguous: a view where they lie so in memory, as the image layers
/// leave them. Convolutions and maps of one pixel's channels are fastest there.
Tensor pixels_of(const Tensor& images);
/// (*batch, H, W, C) as (*batch, C, H, W), without moving anything.
Tensor images_of(const Tensor& pixels);

/// Blocks of 2 x 2 pixels as one of four times the channels: (*batch, H, W, C) -> (*batch, H/2, W/2, 4 C), channel
/// 4 c + 2 i + j being channel c at row i and column j of the block.
Tensor squeezed(const Tensor& pixels);
/// The way back.
Tensor unsqueezed(const Tensor& pixels);

}  // namespace diffeo
