#include "diffeo/layers/shuffle/eiw_shuffle.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <numeric>

#include "diffeo/layers/base/image_space.h"
#include "diffeo/layers/base/penalty.h"
#include "diffeo/layers/base/ranges.h"
#include "diffeo/layers/base/registry.h"
#include "diffeo/layers/shuffle/negentropy.h"
#include "diffeo/layers/shuffle/reordered.h"

namespace diffeo {
namespace {

/// Values of a batch that the running negentropy looks at in each channel, spread evenly: what they cost is small
/// beside a step of training, and the mean over batches sees all of the data.
constexpr int64_t most_values = 512;
constexpr int64_t least_values = 16;

Space space_of(const EiwShuffle::Options& options) {
  check_choice("order", options.order, {"eiw", "static", "negentropy"});
  check_choice("regulariser", options.regulariser, {"kl", "as_coded"});
  at_least(1, "reduction", options.reduction);
  if (!(options.decay >= 0 && options.decay < 1))
    throw SpecError("decay", c10::str("must be in [0, 1), got ", options.decay));
  not_negative("margin", options.margin);
  at_least(0, "settle", options.settle);
  auto space = image_space(options.shape);
  if (options.shape[0] < 2) throw SpecError("shape", "an image of one channel has no order; squeeze it first");
  return space;
}

/// Weights of a map without bias of `inputs` inputs, as LibTorch starts them.
Tensor start(int64_t outputs, int64_t inputs) {
  return (2 * at::rand({outputs, inputs}) - 1) / std::sqrt(static_cast<double>(inputs));
}

}  // namespace

EiwShuffle::EiwShuffle(const Options& options) : Layer(space_of(options)), options_(options) {
  const auto channels = options.shape[0], hidden = std::max<int64_t>(1, channels / 2),
             guides = std::max<int64_t>(1, channels / options.reduction);
  if (options.order == "eiw") {
    // The hidden units see the number of channels itself: they begin at about 1, none of them dead.
    solver_hidden_ = register_parameter("solver_hidden", (0.5 + at::rand({hidden, 1})) / static_cast<double>(channels));
    solver_out_ = register_parameter("solver_out", at::zeros({channels, hidden}));
    guider_hidden_ = register_parameter("guider_hidden", start(guides, channels));
    guider_out_ = register_parameter("guider_out", start(channels, guides));
  } else if (options.order == "negentropy") {
    negentropy_ = register_buffer("negentropy", at::zeros({channels}));
    batches_ = register_buffer("batches", at::zeros({}, at::kLong));
    by_negentropy_ = register_buffer("order", at::arange(channels, at::kLong));
  }
}

Tensor EiwShuffle::solver_logits() const {
  const auto channels = at::full({1}, static_cast<double>(options_.shape[0]), solver_hidden_.options());
  return at::linear(at::linear(channels, solver_hidden_).relu(), solver_out_);
}

Tensor EiwShuffle::weights() const {
  check(solver_out_.defined(), "eiw_shuffle: order ", options_.order, " has no solver");
  return solver_logits().softmax(-1);
}

Tensor EiwShuffle::guided(const Tensor& pooled) const {
  check(guider_out_.defined(), "eiw_shuffle: order ", options_.order, " has no guider");
  return at::linear(at::linear(pooled, guider_hidden_).relu(), guider_out_).log_softmax(-1);
}

Tensor EiwShuffle::order() const {
  torch::NoGradGuard no_grad;
  const auto options = at::TensorOptions(at::kLong).device(tensor_options().device());
  if (options_.order == "static") return at::arange(options_.shape[0], options);
  if (by_negentropy_.defined()) return by_negentropy_.clone();  // a graph may keep it, and the buffer changes
  // In double precision, sum by sum: the same weights are the same order on every device, and ties stay ties.
  const auto hidden = (solver_hidden_.to(at::kDouble) * static_cast<double>(options_.shape[0])).relu();
  const auto logits = (solver_out_.to(at::kDouble) * hidden.t()).sum(1);
  return logits.argsort(/*stable=*/true, 0, /*descending=*/true);
}

void EiwShuffle::measure(const Tensor& pixels) {
  torch::NoGradGuard no_grad;
  // Nothing is left to find out. Another device does the same without being asked, which would wait for it.
  if (batches_.is_cpu() && batches_.item<int64_t>() >= options_.settle) return;
  auto values = pixels.detach().reshape({-1, options_.shape[0]});
  auto step = std::max<int64_t>(1, (values.size(0) + most_values - 1) / most_values);
  // No multiple of an image's side: the same column or row of every image would be taken.
  while (std::gcd(step, options_.shape[1] * options_.shape[2]) > 1) ++step;
  if (step > 1) values = values.slice(0, 0, values.size(0), step);
  if (values.size(0) < least_values) return;
  const auto measured = negentropy(values);
  // A plain mean of the first batches, then a running one; a batch that is not finite is left out.
  const auto rate = (batches_ + 1).to(measured.scalar_type()).reciprocal().clamp_min(1 - options_.decay) *
                    (batches_ < options_.settle);
  negentropy_.add_((rate * (measured - negentropy_)).nan_to_num(0, 0, 0));
  batches_.add_(1).clamp_max_(options_.settle);
  exchange();  // no channel moves once the negentropy stands still
}

void EiwShuffle::exchange() {
  const auto half = options_.shape[0] / 2;
  const auto ranked = [&](const Tensor& channels, bool descending) {
    return channels.index_select(0, negentropy_.index_select(0, channels).argsort(/*stable=*/true, 0, descending));
  };
  const auto kept = ranked(by_negentropy_.narrow(0, 0, half), false),
             left = ranked(by_negentropy_.narrow(0, half, options_.shape[0] - half), true);
  // The best of those left against the worst of those kept, the next against the next: the first pair that does not
  // change places is followed by none that does.
  const auto rivals = left.narrow(0, 0, half);
  const auto wins = negentropy_.index_select(0, rivals) > negentropy_.index_select(0, kept) + options_.margin;
  const auto stay = left.narrow(0, half, left.size(0) - half);
  const auto sorted = [](const Tensor& channels) { return std::get<0>(channels.sort()); };
  by_negentropy_.copy_(
      at::cat({sorted(at::where(wins, rivals, kept)), sorted(at::cat({at::where(wins, kept, rivals), stay}))}));
}

Mapped EiwShuffle::map(const Tensor& x, const Tensor&) {
  const auto unchanged = x.new_zeros(x.sizes().slice(0, x.dim() - 3));
  if (options_.order == "static") return {x, unchanged};
  const auto pixels = x.movedim(-3, -1).contiguous();
  if (is_training() && negentropy_.defined()) measure(pixels);
  const auto first = order();
  const auto shuffled = reordered(pixels, first, first.argsort());
  if (options_.order == "eiw" && Penalties::wanted() && pixels.numel() > 0) {
    check(at::GradMode::is_enabled() || !is_training(),
          "eiw_shuffle: its penalty needs the gradients that --memory checkpoint and "
          "constant leave out of the forward pass; train with --memory normal, or with a penalty of 0");
    const auto pooled = shuffled.mean({-3, -2}).reshape({-1, options_.shape[0]});
    Penalties::add(
        eiw_regulariser(solver_logits().log_softmax(-1), guided(pooled), options_.regulariser == "as_coded"));
  }
  return {shuffled.movedim(-1, -3), unchanged};
}

Mapped EiwShuffle::unmap(const Tensor& y, const Tensor&) {
  const auto unchanged = y.new_zeros(y.sizes().slice(0, y.dim() - 3));
  if (options_.order == "static") return {y, unchanged};
  const auto first = order();
  return {reordered(y.movedim(-3, -1).contiguous(), first.argsort(), first).movedim(-1, -3), unchanged};
}

Tensor eiw_regulariser(const Tensor& log_weights, const Tensor& log_guided, bool as_coded) {
  const auto weights = log_weights.exp();
  const auto guided = as_coded ? log_guided.exp().mean(0) : log_guided.mean(0);
  return (weights * (log_weights - guided)).sum();
}

DIFFEO_LAYER(eiw_shuffle, EiwShuffle,
             "Channels in the order of learned weights, before a split of scales (Chen et al. 2025).",
             "y[i] = x[order[i]], order = argsort of softmax(V2 relu(V1 C)), largest first; log_det = 0", "a copy",
             {"eiw", {{"shape", {4, 2, 1}}}}, {"as_coded", {{"shape", {3, 1, 2}}, {"regulariser", "as_coded"}}},
             {"plain_split", {{"shape", {2, 2, 1}}, {"order", "static"}}},
             {"negentropy", {{"shape", {4, 1, 2}}, {"order", "negentropy"}}});

}  // namespace diffeo
