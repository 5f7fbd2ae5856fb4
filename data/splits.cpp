#include "diffeo/data/splits.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/tensor.h>

#include "diffeo/data/row_tables.h"
#include "diffeo/data/split_rows.h"
#include "diffeo/data/stream.h"

namespace diffeo {
namespace {

constexpr std::array<Tensor Batch::*, 4> members{&Batch::x, &Batch::context, &Batch::weight, &Batch::label};
constexpr int training = 0;

/// The rows of one object, dealt out to train, valid and test, without those that are dropped.
struct Dealt {
  RowTables tables;
  std::optional<SplitRows> split;             ///< none: all rows go to the first part
  std::vector<std::vector<int64_t>> dropped;  ///< of each block, rows that hold missing values

  std::vector<int64_t> rows_of(int64_t block, int part) const {
    std::vector<int64_t> rows, kept;
    if (split) {
      rows = split->rows_in(block)[part];
    } else {
      const auto count = std::min(tables.block_rows(), tables.rows() - block * tables.block_rows());
      for (int64_t row = 0; row < count; ++row) rows.push_back(row);
    }
    std::set_difference(rows.begin(), rows.end(), dropped[block].begin(), dropped[block].end(),
                        std::back_inserter(kept));
    return kept;
  }
};

Batch chosen_of(const Batch& rows, const std::vector<int64_t>& chosen) {
  if (static_cast<int64_t>(chosen.size()) == rows.x.size(0)) return rows;
  const auto index = at::tensor(chosen, at::kLong);
  Batch some;
  for (const auto member : members)
    if ((rows.*member).defined()) some.*member = (rows.*member).index_select(0, index);
  return some;
}

class DealtSource : public BlockSource {
 public:
  DealtSource(std::shared_ptr<const Dealt> dealt, int part) : dealt_(std::move(dealt)), part_(part) {
    for (int64_t block = 0; block < dealt_->tables.blocks(); ++block)
      rows_.push_back(static_cast<int64_t>(dealt_->rows_of(block, part_).size()));
  }
  int64_t blocks() const override { return static_cast<int64_t>(rows_.size()); }
  int64_t rows_in(int64_t block) const override { return rows_[block]; }
  Batch read(int64_t block) const override {
    return chosen_of(dealt_->tables.read(block), dealt_->rows_of(block, part_));
  }

 private:
  std::shared_ptr<const Dealt> dealt_;
  int part_;
  std::vector<int64_t> rows_;
};

/// Rows gathered piece by piece in memory reserved for them.
class Gathered {
 public:
  explicit Gathered(int64_t rows) : reserved_(rows) {}

  void add(const Batch& rows) {
    const auto count = rows.x.size(0);
    for (const auto member : members) {
      const auto& from = rows.*member;
      if (!from.defined()) continue;
      auto& to = rows_.*member;
      if (!to.defined()) {
        auto shape = from.sizes().vec();
        shape[0] = reserved_;
        to = at::empty(shape, from.options());
      }
      to.narrow(0, filled_, count).copy_(from);
    }
    filled_ += count;
  }

  int64_t rows() const { return filled_; }
  DatasetPtr dataset() const {
    Batch rows;
    for (const auto member : members)
      if ((rows_.*member).defined()) rows.*member = (rows_.*member).narrow(0, 0, filled_);
    return in_memory(std::move(rows));
  }

 private:
  int64_t reserved_, filled_ = 0;
  Batch rows_;
};

/// Extremes of each column, and whether it holds whole numbers only.
struct Extremes {
  Tensor lower, upper, whole;  // (D)

  void add(const Tensor& values) {
    if (values.size(0) == 0) return;
    const auto low = values.amin(0), high = values.amax(0), all_whole = (values == values.round()).all(0);
    lower = lower.defined() ? at::minimum(lower, low) : low;
    upper = upper.defined() ? at::maximum(upper, high) : high;
    whole = whole.defined() ? whole.logical_and(all_whole) : all_whole;
  }

  void warn(const std::vector<Column>& columns, const std::string& kind, torch::Dtype dtype,
            std::vector<std::string>& warnings) const {
    if (!lower.defined()) return;
    const double exact = dtype == at::kFloat ? 1 << 24 : 9007199254740992.0;
    for (size_t i = 0; i < columns.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const auto low = lower[at].item<double>(), high = upper[at].item<double>();
      const auto who = kind + " '" + columns[i].name + "' ";
      if (low == high) {
        warnings.push_back(c10::str(who, "is constant (", low, ") in the training rows; leave it out"));
        continue;
      }
      if (columns[i].discrete && std::max(-low, high) > exact)
        warnings.push_back(c10::str(who, "holds integers beyond ", dtype == at::kFloat ? "2^24" : "2^53", ", which ",
                                    dtype == at::kFloat ? "float32 rounds; use float64" : "float64 rounds"));
      if (kind == "column" && (columns[i].discrete || whole[at].item<bool>()))
        warnings.push_back(c10::str(who,
                                    "holds whole numbers only, on which a density can grow without bound; "
                                    "dequantise it (add uniform noise) or leave it out"));
    }
  }
};

/// Reads a file's rows once: gathers them or, for `stream`, only looks at them. Returns the parts, null where empty.
class Loader {
 public:
  Loader(const DataOptions& options, torch::Dtype dtype, bool stream)
      : options_(options), dtype_(dtype), stream_(stream) {}

  std::array<DatasetPtr, SplitRows::parts> load(RowTables tables, std::optional<SplitRows::Counts> counts, bool trains,
                                                std::vector<std::string>& warnings) {
    auto dealt = std::make_shared<Dealt>(Dealt{std::move(tables), std::nullopt, {}});
    const auto& rows = dealt->tables;
    if (counts) dealt->split.emplace(rows.rows(), *counts, options_.split_seed, rows.block_rows());
    dealt->dropped.resize(rows.blocks());
    std::vector<Gathered> gathered;
    for (int part = 0; part < SplitRows::parts; ++part)
      gathered.emplace_back(counts ? (*counts)[part] : part ? 0 : rows.rows());
    Extremes points, contexts;
    int64_t dropped = 0;
    for (int64_t block = 0; block < rows.blocks(); ++block) {
      const auto batch = rows.read(block);
      dealt->dropped[block] = rows.missing_in(batch, block, options_.allow_missing);
      dropped += static_cast<int64_t>(dealt->dropped[block].size());
      for (int part = 0; part < (counts ? SplitRows::parts : 1); ++part) {
        const auto some = chosen_of(batch, dealt->rows_of(block, part));
        if (!stream_) gathered[part].add(some);
        if (part != training || !trains) continue;
        points.add(some.x);
        if (some.context.defined()) contexts.add(some.context);
      }
    }
    if (dropped > 0)
      warnings.push_back(c10::str(rows.where(), ": ", dropped, " of ", rows.rows(),
                                  " rows hold missing or infinite values and were dropped"));
    if (trains) {
      points.warn(rows.columns(), "column", dtype_, warnings);
      contexts.warn(rows.context_columns(), "context column", dtype_, warnings);
    }
    std::array<DatasetPtr, SplitRows::parts> parts;
    for (int part = 0; part < (counts ? SplitRows::parts : 1); ++part) {
      DatasetPtr made;
      if (stream_)
        made = streamed(std::make_shared<DealtSource>(dealt, part), buffer_rows(rows));
      else if (gathered[part].rows() > 0)
        made = gathered[part].dataset();
      if (made && made->rows() > 0) parts[part] = std::move(made);
    }
    return parts;
  }

 private:
  /// Two buffers are held, and rows on their way to them.
  int64_t buffer_rows(const RowTables& rows) const {
    return std::max<int64_t>(1, (options_.memory_mb << 20) / (3 * rows.row_bytes()));
  }

  const DataOptions& options_;
  torch::Dtype dtype_;
  bool stream_;
};

/// The sources with "train" in the path of each object replaced, if the file has such an x.
std::optional<RowSources> stored_split(const RowSources& sources, const std::vector<std::string>& words) {
  const auto root = hdf5::open_file(sources.x.file);
  const auto replaced = [](const std::string& path, const std::string& word) -> std::string {
    for (size_t begin = 1; begin < path.size();) {
      const auto end = std::min(path.find('/', begin), path.size());
      if (path.substr(begin, end - begin) == "train") return path.substr(0, begin) + word + path.substr(end);
      begin = end + 1;
    }
    return {};
  };
  for (const auto& word : words) {
    auto split = sources;
    split.x.object = replaced(sources.x.object, word);
    if (split.x.object.empty() || !root.has(split.x.object)) continue;
    for (auto* other : {&split.context, &split.weight, &split.label}) {
      if (!*other) continue;
      const auto object = replaced((*other)->object, word);
      check(!object.empty(), root.file(), ":", (*other)->object, ": belongs to ", sources.x.object,
            ", but there is nothing of the kind for ", split.x.object);
      (*other)->object = object;
    }
    return split;
  }
  return std::nullopt;
}

void check_same_columns(const RowTables& train, const RowTables& other) {
  const auto names = [](const std::vector<Column>& columns) {
    std::vector<std::string> names;
    for (const auto& column : columns) names.push_back(column.name);
    return names;
  };
  check(names(train.columns()) == names(other.columns()) &&
            names(train.context_columns()) == names(other.context_columns()),
        other.where(), ": its columns are not those of ", train.where());
}

}  // namespace

Splits load_splits(const DataOptions& options, torch::Dtype dtype) {
  check(dtype == at::kFloat || dtype == at::kDouble, "points are float32 or float64, not ", dtype);
  check(options.memory_mb > 0, "memory_mb must be at least 1, got ", options.memory_mb);
  const auto sources = find_sources(options);
  RowTables train(sources, dtype);
  check(train.rows() > 0, train.where(), ": has no rows");
  std::optional<RowTables> valid, test;
  if (const auto stored = stored_split(sources, {"valid", "validation", "val"})) valid.emplace(*stored, dtype);
  if (const auto stored = stored_split(sources, {"test"})) test.emplace(*stored, dtype);
  double bytes = static_cast<double>(train.rows()) * static_cast<double>(train.row_bytes());
  for (const auto* other : {&valid, &test}) {
    if (!*other) continue;
    check_same_columns(train, **other);
    bytes += static_cast<double>((*other)->rows()) * static_cast<double>((*other)->row_bytes());
  }

  Splits splits{.train = {},
                .valid = {},
                .test = {},
                .columns = train.columns(),
                .context_columns = train.context_columns(),
                .image_shape = train.image_shape(),
                .warnings = {}};
  Loader loader(options, dtype, bytes > static_cast<double>(options.memory_mb) * (1 << 20));
  const auto where = train.where();
  if (valid || test) {
    splits.train = loader.load(std::move(train), std::nullopt, true, splits.warnings)[0];
    if (valid) splits.valid = loader.load(std::move(*valid), std::nullopt, false, splits.warnings)[0];
    if (test) splits.test = loader.load(std::move(*test), std::nullopt, false, splits.warnings)[0];
  } else {
    const auto counts = split_counts(train.rows(), options.split);
    auto parts = loader.load(std::move(train), counts, true, splits.warnings);
    splits.train = parts[0], splits.valid = parts[1], splits.test = parts[2];
  }
  check(splits.train != nullptr, where, ": every row holds missing or infinite values");
  return splits;
}

}  // namespace diffeo
