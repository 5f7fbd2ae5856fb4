// Rows for training, choosing and testing: stored or dealt out, each exactly once, in memory and streamed alike.
#include "diffeo/data/splits.h"

#include <gtest/gtest.h>

#include "data/scratch.h"
#include "diffeo/data/split_rows.h"

namespace diffeo::testing {
namespace {

std::vector<Column> named(std::initializer_list<std::string> names) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back({.name = name, .unit = {}, .discrete = false});
  return columns;
}

struct Object {
  std::string path;
  std::vector<Column> columns;
  Tensor rows;
};

void write(const std::string& file, const std::vector<Object>& objects) {
  TableWriter writer(file);
  for (const auto& object : objects) {
    writer.begin(object.path, object.columns, object.rows.scalar_type(), object.rows.dim() == 1);
    writer.append(object.rows);
  }
  writer.finish();
}

Batch all(const Dataset& data) {
  Batch batch;
  data.in_order(data.rows())->next(batch);
  return batch;
}

/// Row r holds r, r + 0.5 and -r: the rows of every part can be told.
Tensor numbered(int64_t rows) {
  const auto number = torch::arange(rows, torch::kFloat64);
  return torch::stack({number, number + 0.5, -number}, 1);
}

TEST(SplitRows, EveryRowGoesToOnePartAndTheSizesAreExact) {
  const SplitRows::Counts counts{700, 200, 73};
  for (const int64_t block_rows : {1, 64, 1000, 5000}) {
    const SplitRows split(1000, counts, 5, block_rows);
    std::vector<int> part_of(1000, -1);
    SplitRows::Counts seen{};
    for (int64_t block = 0; block * block_rows < 1000; ++block) {
      const auto rows = split.rows_in(block);
      for (int part = 0; part < SplitRows::parts; ++part) {
        EXPECT_EQ(static_cast<int64_t>(rows[part].size()), split.count(block, part));
        for (const auto row : rows[part]) {
          auto& place = part_of.at(block * block_rows + row);
          EXPECT_EQ(place, -1);
          place = part;
          ++seen[part];
        }
      }
    }
    EXPECT_EQ(seen, counts);
    // The same rows whatever the blocks: a streamed table is split like one in memory.
    EXPECT_EQ(part_of, [&] {
      std::vector<int> want(1000, -1);
      const auto rows = SplitRows(1000, counts, 5, 1000).rows_in(0);
      for (int part = 0; part < SplitRows::parts; ++part)
        for (const auto row : rows[part]) want[row] = part;
      return want;
    }());
  }
}

TEST(SplitRows, EveryRowIsEquallyLikelyToBeChosen) {
  std::vector<int> chosen(20);
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const auto rows = SplitRows(20, {5, 0, 0}, seed, 20).rows_in(0);
    for (const auto row : rows[0]) ++chosen[row];
  }
  for (const auto times : chosen) EXPECT_NEAR(times, 1000, 5 * std::sqrt(4000 * 0.25 * 0.75));
}

TEST(Splits, FractionsDealOutAllRows) {
  const Scratch scratch;
  write(scratch / "t.h5", {{"/x", named({"a", "b", "c"}), numbered(20000)}});
  for (const int64_t memory_mb : {4096, 1}) {
    DataOptions options{.file = scratch / "t.h5"};
    options.memory_mb = memory_mb;
    // One MiB holds 43690 rows in float64; a table that does not fit is streamed.
    if (memory_mb == 1) write(scratch / "t.h5", {{"/x", named({"a", "b", "c"}), numbered(60000)}});
    const int64_t rows = memory_mb == 1 ? 60000 : 20000;
    const auto splits = load_splits(options, torch::kFloat64);
    EXPECT_EQ(splits.train->rows(), rows * 8 / 10);
    EXPECT_EQ(splits.valid->rows(), rows / 10);
    EXPECT_EQ(splits.test->rows(), rows / 10);
    std::vector<Tensor> parts;
    for (const auto& data : {splits.train, splits.valid, splits.test}) parts.push_back(all(*data).x);
    const auto rows_back = std::get<0>(torch::cat(parts).select(1, 0).sort());
    EXPECT_TRUE(torch::equal(rows_back, torch::arange(rows, torch::kFloat64)));
    EXPECT_TRUE(torch::equal(parts[0].select(1, 0), -parts[0].select(1, 2)));
    Batch batch;
    splits.train->shuffled(rows, 1, 0)->next(batch);
    EXPECT_TRUE(torch::equal(std::get<0>(batch.x.select(1, 0).sort()), parts[0].select(1, 0)));
    options.split_seed = 1;
    EXPECT_FALSE(torch::equal(all(*load_splits(options, torch::kFloat64).valid).x, parts[1]));
  }
}

TEST(Splits, StoredSplitsAreTaken) {
  const Scratch scratch;
  std::vector<Object> objects;
  for (const auto& [part, rows] :
       std::vector<std::pair<std::string, int64_t>>{{"train", 50}, {"valid", 20}, {"test", 10}}) {
    objects.push_back({"/" + part + "/x", named({"a", "b", "c"}), numbered(rows)});
    objects.push_back({"/" + part + "/context", named({"u", "v"}), numbered(rows).slice(1, 0, 2)});
    objects.push_back({"/" + part + "/label", named({"label"}), torch::arange(rows)});
  }
  write(scratch / "t.h5", objects);
  DataOptions options{.file = scratch / "t.h5"};
  options.context = "context";
  options.label = "label";
  const auto splits = load_splits(options, torch::kFloat32);
  EXPECT_EQ(splits.train->rows(), 50);
  EXPECT_EQ(splits.valid->rows(), 20);
  EXPECT_EQ(splits.test->rows(), 10);
  const auto rows = all(*splits.valid);
  EXPECT_TRUE(torch::equal(rows.x, numbered(20).to(torch::kFloat32)));
  EXPECT_TRUE(torch::equal(rows.context, numbered(20).slice(1, 0, 2).to(torch::kFloat32)));
  EXPECT_TRUE(torch::equal(rows.label, torch::arange(20)));
  EXPECT_EQ(splits.context_columns.size(), 2u);
  options.context = "contxt";
  EXPECT_ERROR(load_splits(options, torch::kFloat32), "context: 'contxt' is no object of the file and no column");
}

TEST(Splits, ContextWeightAndLabelMayBeColumnsOfX) {
  const Scratch scratch;
  write(scratch / "t.h5", {{"/x", named({"a", "b", "c"}), numbered(100)}, {"/w", named({"w"}), torch::rand({100})}});
  DataOptions options{.file = scratch / "t.h5"};
  options.x = "/x";
  options.context = "b";
  options.weight = "a";
  const auto splits = load_splits(options, torch::kFloat64);
  ASSERT_EQ(splits.columns.size(), 1u);
  EXPECT_EQ(splits.columns[0].name, "c");
  const auto rows = all(*splits.train);
  EXPECT_TRUE(torch::equal(rows.weight, -rows.x.squeeze(1)));
  EXPECT_TRUE(torch::equal(rows.context.squeeze(1), 0.5 + rows.weight));
  options.weight = "c";
  EXPECT_ERROR(load_splits(options, torch::kFloat64), "its weight is negative");
  options.weight = "w";
  EXPECT_EQ(all(*load_splits(options, torch::kFloat64).train).weight.dim(), 1);
  options.columns = {"b"};
  EXPECT_ERROR(load_splits(options, torch::kFloat64), "'b' is a context, weight or label too");
  write(scratch / "u.h5", {{"/x", named({"a", "b", "c"}), numbered(100)}, {"/w", named({"w"}), torch::rand({99})}});
  options = {.file = scratch / "u.h5"};
  options.x = "x";
  options.weight = "w";
  EXPECT_ERROR(load_splits(options, torch::kFloat64), "u.h5:/w: has 99 rows, but ");
}

TEST(Splits, MissingValuesAreRefusedOrDropped) {
  const Scratch scratch;
  auto rows = numbered(60000);
  rows[1234][1] = std::numeric_limits<double>::quiet_NaN();
  rows[40000][2] = std::numeric_limits<double>::infinity();
  write(scratch / "t.h5", {{"/x", named({"a", "mass", "c"}), rows}});
  for (const int64_t memory_mb : {4096, 1}) {
    DataOptions options{.file = scratch / "t.h5"};
    options.memory_mb = memory_mb;
    EXPECT_ERROR(load_splits(options, torch::kFloat64), "t.h5:/x: row 1234, column 'mass': missing (NaN)");
    options.allow_missing = true;
    const auto splits = load_splits(options, torch::kFloat64);
    EXPECT_EQ(splits.train->rows() + splits.valid->rows() + splits.test->rows(), 59998);
    ASSERT_FALSE(splits.warnings.empty());
    EXPECT_NE(splits.warnings[0].find("2 of 60000 rows hold missing"), std::string::npos) << splits.warnings[0];
    EXPECT_TRUE(torch::isfinite(all(*splits.train).x).all().item<bool>());
  }
}

TEST(Splits, ColumnsThatTrainingSuffersFromAreNamed) {
  const Scratch scratch;
  torch::manual_seed(3);
  const auto whole = torch::randint(0, 5, {100}, torch::kFloat64), constant = torch::full({100}, 2.5, torch::kFloat64);
  write(scratch / "t.h5", {{"/x", named({"good", "constant", "whole"}),
                            torch::stack({torch::randn({100}, torch::kFloat64), constant, whole}, 1)}});
  const auto warnings = load_splits({.file = scratch / "t.h5"}, torch::kFloat32).warnings;
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("column 'constant' is constant (2.5)"), std::string::npos);
  EXPECT_NE(warnings[1].find("column 'whole' holds whole numbers only"), std::string::npos);
  write(scratch / "u.h5", {{"/x", named({"id", "b"}), torch::arange(200).view({100, 2}) + (1 << 24)}});
  EXPECT_NE(
      load_splits({.file = scratch / "u.h5"}, torch::kFloat32).warnings.at(0).find("'id' holds integers beyond 2^24"),
      std::string::npos);
}

TEST(Splits, OptionsThatMakeNoSenseAreRefused) {
  const Scratch scratch;
  write(scratch / "t.h5", {{"/x", named({"a", "b", "c"}), numbered(10)}});
  DataOptions options{.file = scratch / "t.h5"};
  options.split = {0.9, 0.2};
  EXPECT_ERROR(load_splits(options, torch::kFloat32), "sum to 1.1, more than 1");
  options.split = {-0.5};
  EXPECT_ERROR(load_splits(options, torch::kFloat32), "between 0 and 1, got -0.5");
  options.split = {0.0, 1.0};
  EXPECT_ERROR(load_splits(options, torch::kFloat32), "no rows are left to train on");
  options.split = {1.0};
  const auto splits = load_splits(options, torch::kFloat32);
  EXPECT_EQ(splits.train->rows(), 10);
  EXPECT_EQ(splits.valid, nullptr);
}

TEST(ColumnStatistics, AreThoseOfTheWholeTable) {
  torch::manual_seed(4);
  const auto rows =
      torch::randn({40000, 3}, torch::kFloat64) * torch::tensor({1., 1e-3, 100.}) + torch::tensor({1e6, 0., -5.});
  const auto statistics = column_statistics(*in_memory({.x = rows, .context = {}, .weight = {}, .label = {}}));
  const auto close = [](const Tensor& got, const Tensor& want) { return torch::allclose(got, want, 1e-9, 1e-12); };
  EXPECT_TRUE(close(statistics.mean, rows.mean(0)));
  EXPECT_TRUE(close(statistics.deviation, rows.std(0, false)));
  EXPECT_TRUE(torch::equal(statistics.lower, rows.amin(0)));
  EXPECT_TRUE(torch::equal(statistics.upper, rows.amax(0)));
  EXPECT_TRUE(close(statistics.quantile25, torch::quantile(rows, 0.25, 0)));
  EXPECT_TRUE(close(statistics.median, torch::quantile(rows, 0.5, 0)));
  EXPECT_TRUE(close(statistics.quantile75, torch::quantile(rows, 0.75, 0)));
  const auto large = torch::randn({300000, 1}, torch::kFloat64);  // quantiles from a sample
  const auto sampled = column_statistics(*in_memory({.x = large, .context = {}, .weight = {}, .label = {}}));
  EXPECT_NEAR(sampled.median.item<double>(), 0, 0.02);
  EXPECT_NEAR(sampled.quantile75.item<double>(), 0.6745, 0.02);
  const auto one = column_statistics(*in_memory({.x = torch::ones({1, 2}), .context = {}, .weight = {}, .label = {}}));
  EXPECT_EQ(one.deviation.sum().item<double>(), 0);
}

}  // namespace
}  // namespace diffeo::testing
