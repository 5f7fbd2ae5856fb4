#pragma once

#include <functional>
#include <map>

#include "diffeo/bench/stopwatch.h"
#include "diffeo/layers/base/module.h"

namespace diffeo::bench {

/// A linear map of `inputs` to `outputs` values.
struct LinearMap {
  int64_t inputs, outputs;
  auto operator<=>(const LinearMap&) const = default;
};

/// The linear maps that a batch goes through, in order: those of the conditioners, masked ones as if they were dense,
/// and LU maps, which meet the batch as one matrix.
/// Throws Error if they are not nearly all of the module's parameters: something has been overlooked then.
std::vector<LinearMap> linear_maps(const torch::nn::Module& module);

/// One of the three products of a linear map, for `rows` rows: forward (rows, outputs) = (rows, inputs) by
/// (inputs, outputs); by_input (rows, inputs) = (rows, outputs) by (outputs, inputs); by_weight (outputs, inputs) =
/// (outputs, rows) by (rows, inputs). Weights lie as (outputs, inputs).
enum class Product { forward, by_input, by_weight };
enum class Library { onednn, diffeo, libtorch };
std::string to_string(Product product);
std::string to_string(Library library);

/// A call that computes the product on memory of the caller's: `rows_in` (rows, inputs), `weight`, `rows_out`
/// (rows, outputs); the one that is the product's outcome is written. Empty if the library has no kernel for it.
std::function<void()> product_call(Product product, Library library, const Tensor& rows_in, const Tensor& weight,
                                   const Tensor& rows_out);

/// The bare matrix products of a training step, and nothing else: for each linear map forward, by_input and by_weight,
/// the first map's by_input excepted (data wants no gradient). What a step cannot be faster than, unless it multiplies
/// less.
class BareProducts {
 public:
  BareProducts(const std::vector<LinearMap>& maps, int64_t rows);

  /// Runs each product on memory of its own, in the caches from the second time on, in every library that may be the
  /// fastest.
  void measure();
  /// The sum of the products' best times so far, each in the library that was fastest at it.
  Times best() const;
  double operations() const;  ///< floating-point, two for each multiplication

 private:
  struct Candidate {
    std::function<void()> call;
    Times best;
  };
  /// Products of the same sizes are measured once and counted as often as they occur.
  struct Entry {
    double count = 0, operations = 0;
    std::vector<Candidate> candidates;
    Times best;
  };
  std::map<std::pair<LinearMap, Product>, Entry> entries_;
};

}  // namespace diffeo::bench
