#include "diffeo/flows/preprocess.h"

#include <cmath>
#include <set>
#include <sstream>

#include "diffeo/data/dequantize.h"
#include "diffeo/data/numbers.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

/// Of the width between the ends of a dequantised column: noise of [0, 1) may be 0, or rounded to 1 when it is added.
constexpr double room_for_rounding = 1e-6;

/// Rows as the layer to be made will meet them: after dequantisation and transforms. Only for statistics, in order.
class Prepared : public Dataset {
 public:
  Prepared(const Dataset& rows, std::vector<int64_t> noisy, LayerPtr transform)
      : rows_(rows), noisy_(std::move(noisy)), transform_(std::move(transform)) {}

  int64_t rows() const override { return rows_.rows(); }
  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t, int64_t) const override {
    return in_order(batch_size);
  }
  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override {
    auto stream = rows_.in_order(batch_size);
    if (!noisy_.empty()) stream = dequantized(std::move(stream), noisy_, 0);
    return transform_ ? std::make_unique<Stream>(std::move(stream), transform_) : std::move(stream);
  }

 private:
  class Stream : public BatchStream {
   public:
    Stream(std::unique_ptr<BatchStream> rows, LayerPtr transform)
        : rows_(std::move(rows)), transform_(std::move(transform)) {}
    bool next(Batch& batch) override {
      if (!rows_->next(batch)) return false;
      batch.x = transform_->forward(batch.x.to(torch::kFloat64)).value;
      return true;
    }
    void skip(int64_t batches) override { rows_->skip(batches); }

   private:
    std::unique_ptr<BatchStream> rows_;
    LayerPtr transform_;
  };

  const Dataset& rows_;
  std::vector<int64_t> noisy_;
  LayerPtr transform_;
};

int64_t index_of(const std::string& name, const std::vector<Column>& columns, const char* option) {
  std::vector<std::string> names;
  for (const auto& column : columns) names.push_back(column.name);
  const auto found = std::find(names.begin(), names.end(), name);
  check(found != names.end(), option, ": there is no column '", name, "'", suggestion(name, names), "; columns are ",
        c10::Join(", ", names));
  return found - names.begin();
}

/// What is done to a column, and between which ends its values lie.
struct Bending {
  std::string kind = "none";
  double lower = 0, upper = 1;
};

double number_in(const std::string& text, const std::string& item) {
  size_t read = 0;
  double value = 0;
  try {
    value = std::stod(text, &read);
  } catch (const std::logic_error&) {
    read = 0;
  }
  check(read > 0 && read == text.size() && std::isfinite(value), "transform: expected a number, got '", text, "' in '",
        item, "'");
  return value;
}

/// `logit:0:256` and its like.
Bending bending_of(const std::string& name, const std::string& text, const std::string& item) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string part; std::getline(words, part, ':');) parts.push_back(part);
  Bending bending{parts.empty() ? "" : parts[0]};
  check_choice("transform of " + name, bending.kind, {"log", "logit", "none"});
  const size_t ends = parts.size() - 1;
  check(ends == 0 || (ends == 1 && bending.kind == "log") || (ends == 2 && bending.kind == "logit"),
        "transform: expected log:LOWER or logit:LOWER:UPPER, got '", item, "'");
  if (ends > 0) bending.lower = number_in(parts[1], item);
  if (ends > 1) bending.upper = number_in(parts[2], item);
  check(bending.kind != "logit" || bending.lower < bending.upper, "transform: the ends in '", item,
        "' must be one below the other");
  return bending;
}

/// The transform of each column, from items like "energy=log".
std::vector<Bending> transforms_of(const std::vector<std::string>& items, const std::vector<Column>& columns) {
  const bool named_all = std::any_of(columns.begin(), columns.end(), [](const Column& c) { return c.name == "all"; });
  std::vector<Bending> transforms(columns.size());
  std::vector<bool> named(columns.size());
  for (const auto& item : items) {
    const auto equals = item.rfind('=');
    check(equals != std::string::npos,
          "transform: expected COLUMN=log, COLUMN=logit, COLUMN=logit:LOWER:UPPER or COLUMN=none, got '", item, "'");
    const auto name = item.substr(0, equals);
    const auto bending = bending_of(name, item.substr(equals + 1), item);
    if (name == "all" && !named_all) {
      for (size_t i = 0; i < columns.size(); ++i)
        if (!named[i]) transforms[i] = bending;
      continue;
    }
    const auto index = index_of(name, columns, "transform");
    transforms[index] = bending;
    named[index] = true;
  }
  return transforms;
}

/// Throws Error naming the column if values of the training rows are outside of its transform's domain.
void check_domains(const std::vector<Bending>& transforms, const std::vector<Column>& columns,
                   const ColumnStatistics& statistics) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto& [kind, low, high] = transforms[i];
    const auto at = static_cast<int64_t>(i);
    const auto lower = statistics.lower[at].item<double>(), upper = statistics.upper[at].item<double>();
    check(kind == "none" || lower > low, "transform: ", columns[i].name, "=", kind, " needs values above ", low,
          ", but there is ", lower);
    check(kind != "logit" || upper < high, "transform: ", columns[i].name, "=logit needs values below ", high,
          ", but there is ", upper, "; other ends are said as ", columns[i].name, "=logit:LOWER:UPPER");
  }
}

Json transform_spec(const std::vector<Bending>& transforms) {
  Json kinds = Json::array(), lower = Json::array(), upper = Json::array();
  for (const auto& [kind, low, high] : transforms) {
    kinds.push_back(kind);
    lower.push_back(low);
    upper.push_back(high);
  }
  return {{"type", "transform"}, {"features", transforms.size()}, {"kinds", kinds}, {"lower", lower}, {"upper", upper}};
}

/// Shift and scale that bring columns of these statistics near to a standard normal.
std::pair<Tensor, Tensor> shift_and_scale(const std::string& how, const ColumnStatistics& statistics) {
  if (how == "minmax") return {(statistics.lower + statistics.upper) / 2, (statistics.upper - statistics.lower) / 2};
  // Half the distance between the quartiles of a normal is 0.6745 standard deviations.
  if (how == "robust") {
    const auto half_width = (statistics.quantile75 - statistics.quantile25) / 2;
    // Where more than half of the rows hold one value, the quartiles meet.
    return {statistics.median, torch::where(half_width > 0, half_width / 0.6744897501960817, statistics.deviation)};
  }
  if (how == "isotropic")
    return {statistics.mean, statistics.deviation.square().mean().sqrt().expand_as(statistics.deviation)};
  if (how == "shared") {
    const auto mean = statistics.mean.mean();
    const auto variance = (statistics.deviation.square() + (statistics.mean - mean).square()).mean();
    return {mean.expand_as(statistics.mean), variance.sqrt().expand_as(statistics.mean)};
  }
  return {statistics.mean, statistics.deviation};
}

/// logit(a + (1 - 2 a) x / 256) of values of 8 bits with noise in [0, 1), as Dinh et al. 2017, section 4.1, have it.
Json eight_bit_logit(const std::vector<Column>& columns, const ColumnStatistics& statistics) {
  constexpr double margin = 0.05, values = 256, beyond = margin / (1 - 2 * margin) * values;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const auto lower = statistics.lower[at].item<double>(), upper = statistics.upper[at].item<double>();
    check(lower >= 0 && upper <= values, "preprocess: logit is for values of 8 bits, 0 to 255, but column '",
          columns[i].name, "' has ", lower < 0 ? lower : upper);
  }
  return {{"type", "transform"},
          {"features", columns.size()},
          {"kinds", std::vector<std::string>(columns.size(), "logit")},
          {"lower", std::vector<double>(columns.size(), -beyond)},
          {"upper", std::vector<double>(columns.size(), values + beyond)}};
}

Json standardize_spec(const std::string& how, const ColumnStatistics& statistics) {
  auto [shift, scale] = shift_and_scale(how, statistics);
  // A column that does not vary keeps its scale: any other choice would be a division by almost 0.
  const auto floor = 1e-9 * (shift.abs() + 1e-30);
  scale = torch::where(scale > floor, scale, torch::ones_like(scale)).contiguous();
  return {{"type", "standardize"},
          {"features", shift.numel()},
          {"shift", numbers(shift.contiguous())},
          {"scale", numbers(scale)}};
}

/// The contexts of rows, as points.
class Contexts : public Dataset {
 public:
  explicit Contexts(const Dataset& rows) : rows_(rows) {}
  int64_t rows() const override { return rows_.rows(); }
  std::unique_ptr<BatchStream> shuffled(int64_t batch_size, uint64_t, int64_t) const override {
    return in_order(batch_size);
  }
  std::unique_ptr<BatchStream> in_order(int64_t batch_size) const override {
    return std::make_unique<Stream>(rows_.in_order(batch_size));
  }

 private:
  class Stream : public BatchStream {
   public:
    explicit Stream(std::unique_ptr<BatchStream> rows) : rows_(std::move(rows)) {}
    bool next(Batch& batch) override {
      if (!rows_->next(batch)) return false;
      batch = {.x = batch.context};
      return true;
    }
    void skip(int64_t batches) override { rows_->skip(batches); }

   private:
    std::unique_ptr<BatchStream> rows_;
  };

  const Dataset& rows_;
};

}  // namespace

bool learns_noise(const PreprocessOptions& options) {
  const bool learned =
      std::find(options.dequantize.begin(), options.dequantize.end(), "variational") != options.dequantize.end();
  check(!learned || options.dequantize.size() == 1, "dequantize: variational is for all columns and stands alone");
  return learned;
}

std::vector<int64_t> dequantized_columns(const PreprocessOptions& options, const std::vector<Column>& columns) {
  if (learns_noise(options)) return {};
  std::set<int64_t> chosen;
  for (const auto& name : options.dequantize) {
    if (name != "all") {
      chosen.insert(index_of(name, columns, "dequantize"));
      continue;
    }
    for (size_t i = 0; i < columns.size(); ++i)
      if (columns[i].discrete) chosen.insert(static_cast<int64_t>(i));
    check(!chosen.empty(), "dequantize: no column is stored as integers; name those that hold whole numbers");
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<Json> preprocessing(const PreprocessOptions& options, const std::vector<Column>& columns,
                                const Dataset& train) {
  check_choice("preprocess", options.preprocess,
               {"standardize", "minmax", "robust", "isotropic", "shared", "logit", "none"});
  const auto noisy = dequantized_columns(options, columns);
  std::vector<Json> layers;
  LayerPtr transform;
  if (!options.transform.empty()) {
    auto transforms = transforms_of(options.transform, columns);
    for (const auto column : noisy) {
      auto& [kind, low, high] = transforms[column];
      const double room = room_for_rounding * (kind == "logit" ? high - low : 1);
      low -= room;
      high += room;
    }
    check_domains(transforms, columns, column_statistics(Prepared(train, noisy, nullptr)));
    layers.push_back(transform_spec(transforms));
    transform = build_layer(layers.back());
    transform->to(torch::kFloat64);
  }
  if (options.preprocess == "none") return layers;
  const auto statistics = column_statistics(Prepared(train, noisy, transform));
  if (options.preprocess == "logit") {
    check(layers.empty(), "preprocess: logit and --transform exclude each other");
    return {eight_bit_logit(columns, statistics)};
  }
  layers.push_back(standardize_spec(options.preprocess, statistics));
  return layers;
}

std::vector<Json> context_preprocessing(const PreprocessOptions& options, int64_t context, const Dataset& train) {
  check_choice("preprocess_context", options.preprocess_context, {"standardize", "minmax", "robust", "none"});
  if (context == 0 || options.preprocess_context == "none") return {};
  return {standardize_spec(options.preprocess_context, column_statistics(Contexts(train)))};
}

}  // namespace diffeo
