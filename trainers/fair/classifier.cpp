#include "diffeo/trainers/fair/classifier.h"

#include <ATen/ops/bincount.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "diffeo/layers/base/random.h"

namespace diffeo {
namespace {

/// Cross-entropy of a classifier, in nats. The label of a batch is the class.
class CrossEntropy : public Objective {
 public:
  explicit CrossEntropy(ClassifierPtr classifier) : classifier_(register_module("classifier", std::move(classifier))) {}

  Tensor loss(const Batch& batch) override {
    const auto each =
        at::cross_entropy_loss(classifier_->forward(batch.x), batch.label.to(at::kLong), {}, at::Reduction::None);
    return weighted_mean(each, batch.weight);
  }

 private:
  ClassifierPtr classifier_;
};

/// Weights of rows under which each class has the same, 1 on average.
Tensor balance(const Tensor& label, const Tensor& counts, torch::Dtype dtype) {
  const auto each = static_cast<double>(label.size(0)) / static_cast<double>(counts.size(0)) / counts.to(dtype);
  return each.index_select(0, label);
}

}  // namespace

Classifier::Classifier(int64_t features, int64_t classes, int64_t width, int64_t depth)
    : mean_(register_buffer("mean", at::zeros({features}))),
      deviation_(register_buffer("deviation", at::ones({features}))) {
  net_ = register_module("net", build_net({.width = width, .depth = depth, .init_scale = 1}, features, 0, classes));
}

Tensor Classifier::forward(const Tensor& x) { return net_->forward((x - mean_) / deviation_); }

Tensor Classifier::predict(const Tensor& x) {
  const at::NoGradGuard no_grad;
  return forward(x).argmax(-1);
}

void Classifier::standardize(const Tensor& x) {
  const at::NoGradGuard no_grad;
  mean_.copy_(x.mean(0));
  const auto deviation = x.std(0, false);
  deviation_.copy_(deviation.masked_fill(deviation == 0, 1.0));
}

ClassifierPtr fit_classifier(const Labelled& train, const Labelled& valid, int64_t classes, bool balanced,
                             const ClassifierOptions& options) {
  check(train.x.dim() == 2 && train.label.sizes() == train.x.sizes().slice(0, 1),
        "classifier: expected points (n, D) and labels (n), got ", train.x.sizes(), " and ", train.label.sizes());
  const auto counts = at::bincount(train.label, {}, classes);
  const auto empty = (counts == 0).nonzero();
  check(counts.size(0) == classes && empty.size(0) == 0, "classifier: class ",
        empty.size(0) > 0 ? empty[0].item<int64_t>() : classes, " of ", classes, " has no rows");
  const SeedGuard seed(options.seed, train.x.device());
  const auto classifier = std::make_shared<Classifier>(train.x.size(1), classes, options.width, options.depth);
  classifier->to(train.x.device(), train.x.scalar_type());
  classifier->standardize(train.x);
  CrossEntropy objective(classifier);
  objective.to(train.x.device(), train.x.scalar_type());
  const auto rows = [&](const Labelled& from) {
    Batch batch;
    batch.x = from.x;
    batch.label = from.label;
    if (balanced) batch.weight = balance(from.label, counts, from.x.scalar_type());
    return in_memory(batch);
  };
  const auto learn = rows(train);
  const auto choose = valid.x.defined() && valid.x.size(0) > 0 ? rows(valid) : nullptr;
  const FitOptions how{.batch_size = options.batch_size,
                       .steps = options.steps,
                       .learning_rate = options.learning_rate,
                       .weight_decay = options.weight_decay,
                       .evaluate_every = std::max<int64_t>(options.steps / 20, 1),
                       .checkpoint_seconds = 1e9,
                       .seed = options.seed};
  fit(objective, *learn, choose.get(), how);
  classifier->eval();
  return classifier;
}

Tensor hit_rates(const Tensor& predicted, const Tensor& label, int64_t classes) {
  const auto right = (predicted == label).to(at::kDouble);
  return at::bincount(label, right, classes) / at::bincount(label, {}, classes).to(at::kDouble);
}

double accuracy(const Tensor& predicted, const Tensor& label) {
  return (predicted == label).to(at::kDouble).mean().item<double>();
}

double balanced_accuracy(const Tensor& predicted, const Tensor& label, int64_t classes) {
  return hit_rates(predicted, label, classes).mean().item<double>();
}

}  // namespace diffeo
