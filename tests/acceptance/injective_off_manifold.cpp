// Why the encoder's Jacobian is taken at the data, off the manifold (F4): with the exact volume of the decoder, or with
// the encoder's Jacobian at the reconstruction, the likelihood has no bound. The decoder folds its curve where the
// projections are collected, and the density there grows beyond that of the data.
#include "accept.h"
#include "sine_manifold.h"

int main() {
  using namespace diffeo::testing;
  Acceptance accept;
  const auto trained = [](const char* volume) {
    const auto flow = fit_sine({.beta = 5, .noise = 0.1, .volume = volume}, 4000, 1);
    const auto fit = measure_sine(*flow);
    std::printf("%-13s nll %.3f, largest curvature %.3g, reconstruction %.2g\n", volume, fit.nll, fit.curvature,
                fit.reconstruction);
    return fit;
  };
  std::printf("the curve     nll %.3f, largest curvature 2.47\n", sine_entropy());
  const auto off = trained("off_manifold"), on = trained("on_manifold"), exact = trained("exact");
  accept.at_most("off_manifold_nll_error", std::abs(off.nll - sine_entropy()), 0.03);
  accept.at_most("off_manifold_curvature", off.curvature, 4);
  accept.at_least("exact_curvature", exact.curvature, 100);
  accept.at_most("exact_nll_below_the_entropy", exact.nll, 1);
  std::printf("on_manifold, not asked for: nll %.3f, curvature %.3g\n", on.nll, on.curvature);
  return accept.exit_code();
}
