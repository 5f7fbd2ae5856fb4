// What a table writer writes, the reader reads; and the reader's errors name file, object, row and column.
#include "diffeo/data/table.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "data/scratch.h"

namespace diffeo::testing {
namespace {

std::vector<Column> named(std::initializer_list<std::string> names) {
  std::vector<Column> columns;
  for (const auto& name : names) columns.push_back({.name = name, .unit = {}, .discrete = false});
  return columns;
}

void write(const std::string& file, const std::string& object, const std::vector<Column>& columns, const Tensor& rows) {
  TableWriter writer(file);
  writer.begin(object, columns, rows.scalar_type(), rows.dim() == 1);
  writer.append(rows);
  writer.finish();
}

TEST(Table, ReadsWhatWasWritten) {
  const Scratch scratch;
  torch::manual_seed(1);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const auto rows = torch::randn({1000, 3}, dtype);
    auto columns = named({"energy", "px", "py"});
    columns[0].unit = "GeV";
    TableWriter writer(scratch / "t.h5");
    writer.begin("/train/x", columns, dtype);
    for (const auto& piece : rows.split(137)) writer.append(piece);
    writer.attribute("/", "source", "a test");
    writer.finish();

    const auto table = read_table({.file = scratch / "t.h5", .object = {}, .columns = {}}, dtype);
    EXPECT_TRUE(torch::equal(table.values, rows));
    EXPECT_EQ(table.columns, columns);
    EXPECT_EQ(table.event_shape, (std::vector<int64_t>{3}));
    const auto some =
        read_table({.file = scratch / "t.h5", .object = "train/x", .columns = {"py", "0"}}, dtype, 100, 200);
    EXPECT_TRUE(torch::equal(some.values, rows.slice(0, 100, 200).index_select(1, torch::tensor({2, 0}))));
    EXPECT_EQ(some.columns[1].unit, "GeV");
  }
  EXPECT_EQ(scratch.files(), std::vector<std::string>{"t.h5"});
}

TEST(Table, ColumnsAreChosenByNameIndexAndRange) {
  const Scratch scratch;
  const auto rows = torch::arange(20, torch::kFloat32).view({4, 5});
  write(scratch / "t.h5", "x", named({"alpha", "beta", "gamma", "delta", "epsilon"}), rows);
  const auto first_row = [&](std::vector<std::string> columns) {
    const auto values = read_table({scratch / "t.h5", "/x", std::move(columns)}).values[0].contiguous();
    return std::vector<float>(values.data_ptr<float>(), values.data_ptr<float>() + values.numel());
  };
  EXPECT_EQ(first_row({"1:3"}), (std::vector<float>{1, 2}));
  EXPECT_EQ(first_row({"-1", "alpha"}), (std::vector<float>{4, 0}));
  EXPECT_EQ(first_row({"3:", ":2"}), (std::vector<float>{3, 4, 0, 1}));
  EXPECT_ERROR(first_row({"gama"}), "did you mean 'gamma'?");
  EXPECT_ERROR(first_row({"gama"}), "columns are alpha, beta");
  EXPECT_ERROR(first_row({"5"}), "no column 5; it has 5");
  EXPECT_ERROR(first_row({"beta", "1"}), "column 'beta' is chosen twice");
  EXPECT_ERROR(first_row({"4:2"}), "the range '4:2'");
}

TEST(Table, ErrorsNameFileAndObject) {
  const Scratch scratch;
  errno = 0;  // what an earlier call left there is not told
  EXPECT_ERROR(read_table({scratch / "none.h5", "", {}}), "none.h5: cannot open the file: No such file");
  EXPECT_ERROR(read_table({scratch.folder(), "", {}}), "it is a folder");
  write(scratch / "t.h5", "/train/x", named({"a"}), torch::zeros({3, 1}));
  EXPECT_ERROR(read_table({scratch / "t.h5", "/trian/x", {}}), "t.h5: no object '/trian/x'; did you mean '/train/x'?");
}

TEST(Table, NotFiniteValuesAreRefusedWithRowAndColumn) {
  const Scratch scratch;
  auto rows = torch::zeros({300, 2}, torch::kFloat64);
  rows[123][1] = std::numeric_limits<double>::quiet_NaN();
  write(scratch / "t.h5", "/x", named({"a", "mass"}), rows);
  EXPECT_ERROR(read_table({scratch / "t.h5", "/x", {}}), "t.h5:/x: row 123, column 'mass': missing (NaN)");
  EXPECT_ERROR(read_table({scratch / "t.h5", "/x", {}}, torch::kFloat32, 120), "row 123, column 'mass'");
  EXPECT_NO_THROW(read_table({scratch / "t.h5", "/x", {"a"}}));
  EXPECT_NO_THROW(read_table({scratch / "t.h5", "/x", {}}, torch::kFloat32, 0, -1, false));
  rows[123][1] = 1e300;
  write(scratch / "t.h5", "/x", named({"a", "mass"}), rows);
  EXPECT_ERROR(read_table({scratch / "t.h5", "/x", {}}), "1e+300 is too large for float32");
  EXPECT_NO_THROW(read_table({scratch / "t.h5", "/x", {}}, torch::kFloat64));
}

TEST(TableWriter, LeavesNothingBehindUnlessFinished) {
  const Scratch scratch;
  write(scratch / "t.h5", "/x", named({"a"}), torch::ones({3, 1}));
  {
    TableWriter writer(scratch / "t.h5");
    writer.begin("/x", named({"a"}), torch::kFloat32);
    writer.append(torch::zeros({3, 1}));
  }
  EXPECT_EQ(scratch.files(), std::vector<std::string>{"t.h5"});
  EXPECT_EQ(read_table({scratch / "t.h5", "/x", {}}).values.sum().item<float>(), 3);
  EXPECT_ERROR(TableWriter(scratch / "no/t.h5"), "there is no folder");
  EXPECT_ERROR(TableWriter("/dev/null"), "not a regular file");
}

TEST(TableWriter, RefusesRowsThatDoNotFit) {
  const Scratch scratch;
  TableWriter writer(scratch / "t.h5");
  EXPECT_ERROR(writer.append(torch::zeros({3, 1})), "before a dataset was begun");
  writer.begin("/x", named({"a", "b"}), torch::kFloat32);
  EXPECT_ERROR(writer.append(torch::zeros({3, 1})), "t.h5:/x: expected rows of shape (n, 2), got [3, 1]");
  EXPECT_ERROR(writer.begin("/x", named({"a"}), torch::kFloat32), "is written twice");
}

}  // namespace
}  // namespace diffeo::testing
