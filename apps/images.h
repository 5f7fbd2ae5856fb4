#pragma once

#include "diffeo/data/image_rows.h"

namespace diffeo::apps {

/// How images lie in rows of so many columns: as the options --image C,H,W and --layout say (empty: not given), else as
/// the file says, whose `stored` shape that is; nothing where neither says that they are images. Throws Error,
/// beginning with the option or with `where`, if that is not clear or does not fit the columns.
std::optional<ImageRows> images_of_rows(const std::vector<int64_t>& image, const std::string& layout,
                                        const std::string& where, const std::vector<int64_t>& stored, int64_t columns);

/// The same for what needs images. Throws Error that begins with `who` if they are none.
ImageRows required(const std::optional<ImageRows>& images, const std::string& who);

}  // namespace diffeo::apps
