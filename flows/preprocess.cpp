#include "diffeo/flows/preprocess.h"

#include <set>

#include "diffeo/data/dequantize.h"
#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

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

/// The transform of each column, from items like "energy=log".
std::vector<std::string> transforms_of(const std::vector<std::string>& items, const std::vector<Column>& columns) {
  std::vector<std::string> transforms(columns.size(), "none");
  for (const auto& item : items) {
    const auto equals = item.rfind('=');
    check(equals != std::string::npos, "transform: expected COLUMN=log, COLUMN=logit or COLUMN=none, got '", item, "'");
    const auto name = item.substr(0, equals), transform = item.substr(equals + 1);
    check_choice("transform of " + name, transform, {"log", "logit", "none"});
    transforms[index_of(name, columns, "transform")] = transform;
  }
  return transforms;
}

/// Throws Error naming the column if values of the training rows are outside of its transform's domain.
void check_domains(const std::vector<std::string>& transforms, const std::vector<Column>& columns,
                   const ColumnStatistics& statistics) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const auto lower = statistics.lower[at].item<double>(), upper = statistics.upper[at].item<double>();
    check(transforms[i] == "none" || lower > 0, "transform: ", columns[i].name, "=", transforms[i],
          " needs values above 0, but there is ", lower);
    check(transforms[i] != "logit" || upper < 1, "transform: ", columns[i].name,
          "=logit needs values below 1, but there is ", upper);
  }
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
  return {statistics.mean, statistics.deviation};
}

std::vector<double> numbers(const Tensor& tensor) {
  return {tensor.data_ptr<double>(), tensor.data_ptr<double>() + tensor.numel()};
}

}  // namespace

std::vector<int64_t> dequantized_columns(const PreprocessOptions& options, const std::vector<Column>& columns) {
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
  check_choice("preprocess", options.preprocess, {"standardize", "minmax", "robust", "isotropic", "none"});
  const auto features = static_cast<int64_t>(columns.size());
  const auto noisy = dequantized_columns(options, columns);
  std::vector<Json> layers;
  LayerPtr transform;
  if (!options.transform.empty()) {
    const auto transforms = transforms_of(options.transform, columns);
    check_domains(transforms, columns, column_statistics(Prepared(train, noisy, nullptr)));
    layers.push_back({{"type", "transform"}, {"features", features}, {"kinds", transforms}});
    transform = build_layer(layers.back());
    transform->to(torch::kFloat64);
  }
  if (options.preprocess == "none") return layers;
  const auto statistics = column_statistics(Prepared(train, noisy, transform));
  auto [shift, scale] = shift_and_scale(options.preprocess, statistics);
  // A column that does not vary keeps its scale: any other choice would be a division by almost 0.
  const auto floor = 1e-9 * (shift.abs() + 1e-30);
  scale = torch::where(scale > floor, scale, torch::ones_like(scale)).contiguous();
  layers.push_back({{"type", "standardize"},
                    {"features", features},
                    {"shift", numbers(shift.contiguous())},
                    {"scale", numbers(scale)}});
  return layers;
}

}  // namespace diffeo
