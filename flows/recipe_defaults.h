#pragma once

#include "diffeo/flows/recipes.h"

namespace diffeo {

/// The given options with the standard ones where none are given. An option that a recipe has no standard value for is
/// one that it does not understand: throws SpecError. `name` is that of the recipe.
RecipeOptions filled(const std::string& name, const RecipeOptions& given, const RecipeOptions& standard);

}  // namespace diffeo
