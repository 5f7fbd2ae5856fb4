#pragma once

#include "diffeo/flows/flow.h"

namespace diffeo {

/// Options that every named recipe understands; a value of 0 or an empty one means the recipe's own default.
struct RecipeOptions {
  int64_t features = 0;
  int64_t context = 0;
  int64_t latent = 0;
  int64_t augment = 0;
  int64_t layers = 0;
  int64_t width = 0;
  int64_t depth = 0;
  std::string net;
  std::string activation;
  double dropout = 0, init_scale = 0;
  std::string precision;
  int64_t bins = 0;
  double bound = 0;
  double temperature = 0;
  std::string mask;
  std::string linear;
  std::vector<int64_t> image;
  std::string layout;
  int64_t levels = 0;
  std::string order;
  std::string regulariser;
  std::string prior;
  Json base = nullptr;
  std::string density, kernel;
  int64_t seed = 0;
  static constexpr auto fields() {
    using O = RecipeOptions;
    return std::tuple{
        required("features", &O::features, "D"),
        optional("context", &O::context, "C, 0 for none"),
        optional("latent", &O::latent, "d of injective flows: the dimension of the manifold, below D"),
        optional("augment", &O::augment, "of augmented flows: features of noise beside those of the data"),
        optional("layers", &O::layers,
                 "number of couplings, autoregressive layers or matrices; of images: couplings in each level"),
        optional("width", &O::width, "units or channels in each hidden layer of the conditioners"),
        optional("depth", &O::depth, "hidden layers, or residual blocks"),
        optional("net", &O::net, "mlp or residual; of images: conv or gated_residual"),
        optional("activation", &O::activation, "activation of the conditioners"),
        optional("dropout", &O::dropout, "dropout of the conditioners"),
        optional(
            "init_scale", &O::init_scale,
            "factor on the initial weights of the conditioners' last map: small starts the flow near the identity, "
            "1 far from it; 0: 0.001 for affine couplings, else 0.1"),
        optional("precision", &O::precision, "full, or bfloat16 for the products inside of conditioners"),
        optional("bins", &O::bins, "bins of the splines"),
        optional("bound", &O::bound, "the splines act on [-bound, bound]"),
        optional("temperature", &O::temperature, "of the splines' widths and heights; the root of the width if 0"),
        optional("mask", &O::mask, "half, alternating or random"),
        optional("linear", &O::linear, "between couplings: lu, permutation, orthogonal or none"),
        optional("image", &O::image, "C,H,W of rows that are images; where the data say it: theirs"),
        optional("layout", &O::layout, "of images in rows: nchw (channel after channel) or nhwc (pixel after pixel)"),
        optional("levels", &O::levels, "scales of a flow of images; 0: as many as the sides allow, at most 3"),
        optional("order", &O::order,
                 "of the channels where a flow of images is split: eiw (learned weights), static or negentropy"),
        optional("regulariser", &O::regulariser, "of order eiw: kl or as_coded"),
        optional("prior", &O::prior, "of what a flow of images factors out: standard or learned"),
        optional("base", &O::base, "spec of the base distribution"),
        optional("density", &O::density, "what stochastic layers move towards: NAME:key=value, or a spec as JSON"),
        optional("kernel", &O::kernel, "the stochastic layers: NAME:key=value, or a spec as JSON"),
        optional("seed", &O::seed, "seed of random masks and permutations")};
  }
};

/// A named architecture from the literature: a function that writes a flow's spec.
struct Recipe {
  std::string name, summary;
  Json (*write)(const RecipeOptions& options);
  bool injective = false;  ///< onto a manifold: needs `latent`
  bool images = false;     ///< of rows that are images: it needs their shape
};

/// Every recipe, in the order in which `diffeo inspect --recipes` lists them.
const std::vector<Recipe>& all_recipes();

/// The spec of a named flow. Throws SpecError with the nearest name for an unknown one.
Json recipe(const std::string& name, const RecipeOptions& options);

}  // namespace diffeo
