#pragma once

#include "diffeo/data/image_rows.h"
#include "diffeo/flows/recipes.h"

namespace diffeo {

/// Multi-scale flows of images, from flat rows to one flat base: a squeeze and `layers` steps of ActNorm, 1 x 1
/// convolution and coupling; then, `levels` - 1 times, a squeeze, the shuffle of channels by `order`, half of the
/// channels factored out, and steps again; at the end a mean and a scale for each channel.
///
/// `eiw` sorts the channels by learned weights, `glow-image` leaves them as they are.
/// Throws SpecError unless `image` fits the features and `levels` the sides.
Json eiw(const RecipeOptions& given);
Json glow_image(const RecipeOptions& given);

/// A layer of learned dequantisation (variational_dequantization) for images in rows: four couplings whose networks of
/// `width` channels see the image, on squeezed noise where both sides are even.
Json image_dequantization(const ImageRows& images, int64_t width = 32);

/// Times that images of these sides can be squeezed.
int64_t most_levels(int64_t height, int64_t width);

}  // namespace diffeo
