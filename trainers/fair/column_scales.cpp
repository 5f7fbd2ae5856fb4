#include "diffeo/trainers/fair/column_scales.h"

#include <ATen/ops/_unique2.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/log.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "diffeo/data/numbers.h"

namespace diffeo {
namespace {

constexpr int64_t most_knots = 257;

Tensor doubles(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

void check_scale_options(const ColumnScales::Options& options) {
  check_choice("scaling", options.scaling, {"range", "quantile"});
  if (!(options.alpha > 0 && options.alpha < 1))
    throw SpecError("alpha", c10::str("must lie between 0 and 1, got ", options.alpha));
}

}  // namespace

ColumnScales::ColumnScales(const Tensor& x, const Options& options) : options_(options), columns_(x.size(1)) {
  check_scale_options(options);
  const auto rows = static_cast<double>(x.size(0));
  for (int64_t column = 0; column < columns_; ++column) {
    const auto [distinct, where, counts] =
        at::_unique2(x.select(1, column).to(torch::kCPU, torch::kDouble), true, false, true);
    Scale scale{
        .column = column, .discrete = 2 * distinct.size(0) <= x.size(0), .values = {}, .places = {}, .widths = {}};
    if (distinct.size(0) < 2) continue;
    const auto share = counts.to(torch::kDouble) / rows;
    const double lower = distinct[0].item<double>(), upper = distinct[-1].item<double>();
    if (scale.discrete) {
      scale.values = numbers(distinct);
      if (options.scaling == "quantile") {
        scale.places = numbers(share.cumsum(0) - share);
        scale.widths = numbers(share);
      } else {
        const double gap = distinct.diff().min().item<double>(), range = upper - lower + gap;
        scale.places = numbers((distinct - lower) / range);
        scale.widths.assign(scale.values.size(), gap / range);
      }
    } else if (options.scaling == "quantile") {
      const auto below = (share.cumsum(0) - share) / (1 - share[-1]);  // from 0 to 1
      const auto knots = std::min(most_knots, distinct.size(0));
      for (int64_t i = 0; i < knots; ++i) {
        const auto at = i * (distinct.size(0) - 1) / (knots - 1);
        scale.values.push_back(distinct[at].item<double>());
        scale.places.push_back(below[at].item<double>());
      }
    } else {
      scale.values = {lower, upper};
      scale.places = {0, 1};
    }
    scales_.push_back(std::move(scale));
  }
  check(!scales_.empty(), "column scales: every column is constant in the training rows");
}

ColumnScales::ColumnScales(const Json& spec) {
  const auto wrong = [](const std::string& what) { throw SpecError("scales", what); };
  if (!spec.is_object() || !spec.contains("columns") || !spec.contains("scales") || !spec["scales"].is_array())
    wrong("expected an object with columns and scales");
  try {
    options_.scaling = spec.at("scaling").get<std::string>();
    options_.alpha = spec.at("alpha").get<double>();
    columns_ = spec.at("columns").get<int64_t>();
    for (const auto& one : spec["scales"])
      scales_.push_back({.column = one.at("column").get<int64_t>(),
                         .discrete = one.at("discrete").get<bool>(),
                         .values = one.at("values").get<std::vector<double>>(),
                         .places = one.at("places").get<std::vector<double>>(),
                         .widths = one.at("widths").get<std::vector<double>>()});
  } catch (const Json::exception& error) {
    wrong(error.what());
  }
  check_scale_options(options_);
  if (scales_.empty()) wrong("there is none");
  for (const auto& scale : scales_)
    if (scale.column < 0 || scale.column >= columns_ || scale.values.size() < 2 ||
        scale.places.size() != scale.values.size() ||
        scale.widths.size() != (scale.discrete ? scale.values.size() : 0) ||
        !std::is_sorted(scale.values.begin(), scale.values.end()))
      wrong(c10::str("the scale of column ", scale.column, " is damaged"));
}

Json ColumnScales::spec() const {
  Json scales = Json::array();
  for (const auto& scale : scales_)
    scales.push_back({{"column", scale.column},
                      {"discrete", scale.discrete},
                      {"values", scale.values},
                      {"places", scale.places},
                      {"widths", scale.widths}});
  return {{"scaling", options_.scaling}, {"alpha", options_.alpha}, {"columns", columns_}, {"scales", scales}};
}

std::vector<int64_t> ColumnScales::left_out() const {
  std::vector<int64_t> out;
  for (int64_t column = 0; column < columns_; ++column)
    if (std::none_of(scales_.begin(), scales_.end(), [&](const Scale& scale) { return scale.column == column; }))
      out.push_back(column);
  return out;
}

Tensor ColumnScales::place(const Tensor& x) const {
  check(x.dim() == 2 && x.size(1) == columns_, "column scales: expected rows of ", columns_, " columns, got ",
        x.sizes());
  std::vector<Tensor> places, widths;
  const auto rows = x.to(torch::kCPU, torch::kDouble);
  for (const auto& scale : scales_) {
    const auto value = rows.select(1, scale.column).contiguous();
    const auto values = doubles(scale.values), starts = doubles(scale.places);
    const auto last = values.size(0) - 1;
    if (scale.discrete) {
      const auto between = 0.5 * (values.narrow(0, 0, last) + values.narrow(0, 1, last));
      const auto nearest = at::searchsorted(between, value);
      places.push_back(starts.index_select(0, nearest));
      widths.push_back(doubles(scale.widths).index_select(0, nearest));
    } else {
      const auto left = (at::searchsorted(values, value, false, true) - 1).clamp(0, last - 1);
      const auto from = values.index_select(0, left), to = values.index_select(0, left + 1);
      const auto start = starts.index_select(0, left), end = starts.index_select(0, left + 1);
      places.push_back(start + (end - start) * ((value - from) / (to - from)).clamp(0, 1));
      widths.push_back(at::zeros_like(value));
    }
  }
  return at::cat({at::stack(places, 1), at::stack(widths, 1)}, 1).to(x.device(), x.scalar_type());
}

Tensor ColumnScales::points(const Tensor& places) const {
  const auto start = places.narrow(1, 0, features()), width = places.narrow(1, features(), features());
  const auto place = (start + width * at::rand_like(start)).clamp(0, 1);
  const auto inside = options_.alpha / 2 + (1 - options_.alpha) * place;
  return inside.log() - (1 - inside).log();
}

Tensor PlacedRows::loss(const Batch& batch) {
  auto points = batch;
  points.x = scales_.points(batch.x);
  return objective_->loss(points);
}

}  // namespace diffeo
