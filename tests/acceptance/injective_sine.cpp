// A free-form injective flow learns a curve in the plane: its density along the curve, and how near it comes (F3).
#include "accept.h"
#include "sine_manifold.h"

int main() {
  using namespace diffeo::testing;
  Acceptance accept;
  const auto flow = fit_sine({.beta = 10, .noise = 0.1}, 6000, 1);
  const auto fit = measure_sine(*flow);
  accept.at_most("sine_nll_error", std::abs(fit.nll - sine_entropy()), 0.03);
  accept.at_most("sine_reconstruction", fit.reconstruction, 0.002);
  accept.at_most("sine_latent_deviation_error", std::abs(fit.deviation - 1), 0.03);
  accept.at_most("sine_distance_of_samples", fit.distance, 0.03);
  return accept.exit_code();
}
