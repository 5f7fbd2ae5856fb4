#include "diffeo/data/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "diffeo/data/table_stream.h"

namespace diffeo {
namespace {

/// A file that is gone after the test.
struct File {
  std::string path =
      (std::filesystem::temp_directory_path() / ("diffeo-summary-" + std::to_string(getpid()) + ".h5")).string();
  ~File() { std::filesystem::remove(path); }
  void write(const std::vector<std::pair<std::string, Tensor>>& tables) const {
    TableWriter writer(path);
    for (const auto& [object, rows] : tables) {
      std::vector<Column> columns;
      for (int64_t i = 0; i < rows.size(1); ++i)
        columns.push_back({.name = c10::str("c", i), .unit = "", .discrete = false});
      writer.begin(object, columns, rows.scalar_type());
      writer.append(rows);
    }
    writer.finish();
  }
};

TEST(Summary, CountsMissingValuesAndDescribesTheRest) {
  torch::manual_seed(5);
  auto x = 1e4 + torch::randn({3000, 3}, torch::kFloat64);
  x.select(1, 1).copy_(torch::arange(3000));
  x[10][0] = std::nan("");
  x[11][0] = HUGE_VAL;
  x.select(1, 2).fill_(std::nan(""));
  const File file;
  file.write({{"/x", x}});
  const auto summaries = summarize({file.path, "/x", {}});
  ASSERT_EQ(summaries.size(), 3u);
  const auto finite = x.select(1, 0).index({x.select(1, 0).isfinite()});
  EXPECT_EQ(summaries[0].missing, 2);
  EXPECT_EQ(summaries[0].smallest, finite.min().item<double>());
  EXPECT_EQ(summaries[0].largest, finite.max().item<double>());
  EXPECT_NEAR(summaries[0].mean, finite.mean().item<double>(), 1e-9);
  EXPECT_NEAR(summaries[0].deviation, finite.std().item<double>(), 1e-9);
  EXPECT_FALSE(summaries[0].whole);
  EXPECT_TRUE(summaries[1].whole);
  EXPECT_EQ(summaries[2].missing, 3000);
  EXPECT_TRUE(std::isnan(summaries[2].mean));
  // A part of the rows.
  EXPECT_EQ(summarize({file.path, "/x", {"c1"}}, 100)[0].largest, 99);
}

TEST(TableStream, WalksThroughRowsAndTheirContext) {
  torch::manual_seed(6);
  const auto x = torch::randn({100, 2}), context = torch::randn({100, 1}), short_context = torch::randn({99, 1});
  const File file;
  file.write({{"/x", x}, {"/context", context}, {"/short", short_context}});
  const auto stream = table_stream({file.path, "/x", {}}, TableSource{file.path, "/context", {}}, 32, torch::kFloat32);
  stream->skip(1);
  std::vector<Tensor> points, contexts;
  for (Batch batch; stream->next(batch);) points.push_back(batch.x), contexts.push_back(batch.context);
  EXPECT_EQ(points.size(), 3u);
  EXPECT_TRUE(torch::cat(points).equal(x.slice(0, 32)));
  EXPECT_TRUE(torch::cat(contexts).equal(context.slice(0, 32)));
  EXPECT_THROW(table_stream({file.path, "/x", {}}, TableSource{file.path, "/short", {}}, 32, torch::kFloat32), Error);
}

}  // namespace
}  // namespace diffeo
