#pragma once

#include "diffeo/layers/base/univariate.h"

namespace diffeo {

/// Monotone rational-quadratic spline with K bins.
///
/// Parameters per feature: K widths, K heights (both through a softmax at a temperature, with a floor), then the slopes
/// at the knots (through a softplus with a floor): K - 1 inner ones with `tails` linear (identity outside of the bound,
/// slope 1 at its ends), K + 1 with tails none (points outside of the domain are refused), K with tails circular (the
/// two ends are one point with one slope).
///
/// Durkan et al., "Neural Spline Flows", 2019, https://arxiv.org/abs/1906.04032, eq. 4-8 and appendix A;
/// Rezende et al., "Normalizing Flows on Tori and Spheres", 2020, https://arxiv.org/abs/2002.02428, section 2.3.
class RqSpline : public Univariate {
 public:
  struct Options {
    int64_t bins = 8;
    double bound = 3;
    std::string tails = "linear";
    std::vector<double> domain;
    std::vector<double> codomain;
    double min_width = 1e-3;
    double min_height = 1e-3;
    double min_slope = 1e-3;
    double temperature = 1;
    static constexpr auto fields() {
      using O = Options;
      return std::tuple{
          optional("bins", &O::bins, "K, at least 1"),
          optional("bound", &O::bound, "the spline acts on [-bound, bound], unless domain says otherwise"),
          optional("tails", &O::tails,
                   "linear (identity outside), none (a bounded domain) or circular (angles in [-pi, pi))"),
          optional("domain", &O::domain, "[lower, upper] of a bounded domain (tails none)"),
          optional("codomain", &O::codomain, "[lower, upper] of where a bounded domain goes; the domain if empty"),
          optional("min_width", &O::min_width, "least width of a bin, as a part of the domain; below 1 / bins"),
          optional("min_height", &O::min_height, "least height of a bin, as a part of the codomain; below 1 / bins"),
          optional("min_slope", &O::min_slope, "least slope at a knot"),
          optional("temperature", &O::temperature,
                   "divides the parameters of widths and heights: a high one learns them slowly")};
    }
  };

  explicit RqSpline(const Options& options);

  int64_t parameters() const override;
  Mapped forward(const Tensor& x, const Tensor& parameters) const override;
  Mapped inverse(const Tensor& y, const Tensor& parameters) const override;
  std::vector<double> identity() const override;
  Axis domain() const override;
  Axis codomain() const override;
  bool has_gradients(const Tensor& points) const override;
  MapGradients gradients(const Tensor& points, const Tensor& parameters, const Tensor& value, const Tensor& by_value,
                         const Tensor& by_log_det, bool inverse) const override;
  Json spec() const override { return write("rq_spline", options_); }

 private:
  Options options_;
};

}  // namespace diffeo
