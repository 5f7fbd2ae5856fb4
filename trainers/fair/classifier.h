#pragma once

#include "diffeo/layers/nets/net.h"
#include "diffeo/trainers/fit.h"

namespace diffeo {

/// What a classifier looks like and how long it learns.
struct ClassifierOptions {
  int64_t width = 50;
  int64_t depth = 2;
  int64_t steps = 1500;
  int64_t batch_size = 256;
  double learning_rate = 3e-3;
  double weight_decay = 1e-4;
  uint64_t seed = 0;
};

/// A dense network on standardised points that tells `classes` classes apart.
class Classifier : public Module {
 public:
  Classifier(int64_t features, int64_t classes, int64_t width, int64_t depth);
  /// Logits (*batch, classes) of x (*batch, D).
  Tensor forward(const Tensor& x);
  /// The likeliest class of each point, (*batch), int64.
  Tensor predict(const Tensor& x);
  /// Takes mean and deviation of rows (n, D) as the units of the network's inputs.
  void standardize(const Tensor& x);

 private:
  Tensor mean_, deviation_;  ///< (D)
  NetPtr net_;
};
using ClassifierPtr = std::shared_ptr<Classifier>;

/// Points x (n, D) with their classes (n), int64, from 0.
struct Labelled {
  Tensor x, label;
};

/// A classifier of `classes` classes fitted to `train`, kept where its cross-entropy on `valid` (may be empty: the last
/// state) was best. With `balanced`, each class weighs the same however many rows it has: what an adversary does whose
/// score is the balanced accuracy. Throws Error for a class without rows.
ClassifierPtr fit_classifier(const Labelled& train, const Labelled& valid, int64_t classes, bool balanced,
                             const ClassifierOptions& options);

/// The share of rows of each class, (classes) in float64, that are predicted (n) right; NaN for a class without rows.
Tensor hit_rates(const Tensor& predicted, const Tensor& label, int64_t classes);
/// The share of all rows that are predicted right.
double accuracy(const Tensor& predicted, const Tensor& label);
/// The mean of the classes' hit rates.
double balanced_accuracy(const Tensor& predicted, const Tensor& label, int64_t classes);

}  // namespace diffeo
