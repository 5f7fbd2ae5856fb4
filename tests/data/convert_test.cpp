// Tables in text and NumPy files become HDF5 tables and come back with the same numbers.
#include "diffeo/data/convert.h"

#include <gtest/gtest.h>

#include <fstream>

#include "data/scratch.h"
#include "diffeo/data/hdf5.h"
#include "diffeo/data/numpy.h"

namespace diffeo::testing {
namespace {

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> names_of(const Table& table) {
  std::vector<std::string> names;
  for (const auto& column : table.columns) names.push_back(column.name);
  return names;
}

Table converted(const std::string& from, const std::string& to, const ConvertOptions& options = {}) {
  convert_table(from, to, options);
  return read_table({to, "", {}}, torch::kFloat64, 0, -1, false);
}

TEST(Csv, EverySeparatorIsFound) {
  const Scratch scratch;
  const auto want = torch::tensor({{1.0, -2.5}, {3e-7, 4.0}}, torch::kFloat64);
  for (const auto& text :
       {"a,b\n1,-2.5\n3e-7,4\n", "a;b\r\n1;-2.5\r\n3e-7;4\r\n", "a\tb\n1\t-2.5\n3e-7\t4", "a b\n1   -2.5\n 3e-7 4\n",
        "# a b\n1 -2.5\n# a remark\n3e-7 4\n", "\xEF\xBB\xBF\"a\" , b\n\n\"1\",-2.5\n +3e-7 ,\"4\"\n"}) {
    SCOPED_TRACE(text);
    put(scratch / "t.csv", text);
    const auto table = converted(scratch / "t.csv", scratch / "t.h5");
    EXPECT_TRUE(torch::equal(table.values, want)) << table.values;
    EXPECT_EQ(names_of(table), (std::vector<std::string>{"a", "b"}));
  }
  put(scratch / "t.csv", "1,2\n3,4\n");
  EXPECT_EQ(names_of(converted(scratch / "t.csv", scratch / "t.h5")), (std::vector<std::string>{"x0", "x1"}));
  EXPECT_EQ(converted(scratch / "t.csv", scratch / "t.h5", {.header = "yes"}).values.size(0), 1);
}

TEST(Csv, MistakesAreNamedByLineAndColumn) {
  const Scratch scratch;
  const auto error = [&](const std::string& text, const ConvertOptions& options = {}) {
    put(scratch / "t.csv", text);
    return message_of([&] { convert_table(scratch / "t.csv", scratch / "t.h5", options); });
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error("a,b\n1,2\n3\n"), "t.csv: line 3: has 1 fields, expected 2");
  expect(error("a,b\n1,2\n\n3,\n"), "t.csv: line 4, column 'b': nothing there; missing values are read as NaN");
  expect(error("a,b\n1,NA\n"), "line 2, column 'b': 'NA'");
  expect(error("a,b\n1,blue\n"), "line 2, column 'b': 'blue' is no number; words are numbered with --categorical");
  expect(error("a,b\n1,1e999\n"), "'1e999' is no number");
  expect(error("a,b\n1,\"2\n"), "not closed");
  expect(error(""), "holds no rows");
  expect(error("a,b\n"), "holds no rows");
  expect(error("a,b\n1,2\n", {.columns = {"c"}}), "no column 'c'");
  expect(error("a,b\n1,2\n", {.separator = "colon"}), "unknown value 'colon'");
  expect(error(std::string("a,b\n1,\0\n", 8)), "zero byte");
  EXPECT_EQ(scratch.files(), std::vector<std::string>{"t.csv"});
}

TEST(Csv, MissingValuesAreReadWhenAsked) {
  const Scratch scratch;
  put(scratch / "t.csv", "a,b,c,d\n1,,NA,?\nnan,2,3,4\n");
  const auto table = converted(scratch / "t.csv", scratch / "t.h5", {.missing = true});
  EXPECT_EQ(torch::isnan(table.values).sum().item<int64_t>(), 4);
  EXPECT_EQ(torch::nansum(table.values).item<double>(), 10);
}

TEST(Csv, WordsAreNumberedWhenAsked) {
  const Scratch scratch;
  put(scratch / "t.csv", "size,kind\n1,\"h, or so\"\n2,g\n3,g\n");
  for (const auto& categorical : {std::vector<std::string>{"kind"}, {"all"}}) {
    const auto table = converted(scratch / "t.csv", scratch / "t.h5", {.categorical = categorical});
    EXPECT_TRUE(torch::equal(table.values, torch::tensor({{1., 1.}, {2., 0.}, {3., 0.}}, torch::kFloat64)));
    const auto names = hdf5::open_file(scratch / "t.h5").open("/x").attribute("categories_json");
    EXPECT_EQ(names, R"({"kind":["g","h, or so"]})");
  }
}

TEST(Csv, NumbersSurviveTheWayThroughText) {
  const Scratch scratch;
  torch::manual_seed(1);
  for (const auto dtype : {torch::kFloat32, torch::kFloat64}) {
    const auto rows = torch::randn({500, 3}, dtype) * torch::pow(10, torch::randint(-30, 30, {500, 3}, dtype));
    TableWriter writer(scratch / "a.h5");
    writer.begin("/x", {{"p", "", false}, {"q, r", "", false}, {"\"s\"", "", false}}, dtype);
    writer.append(rows);
    writer.finish();
    for (const auto* name : {"t.csv", "t.tsv"}) {
      convert_table(scratch / "a.h5", scratch / name);
      const auto back = converted(scratch / name, scratch / "b.h5");
      EXPECT_TRUE(torch::equal(back.values.to(dtype), rows));
      EXPECT_EQ(names_of(back), (std::vector<std::string>{"p", "q, r", "\"s\""}));
    }
  }
  EXPECT_NE(text_of(scratch / "t.csv").find("\"q, r\""), std::string::npos);
}

std::string npy(const std::string& header, const std::string& values, char version = 1) {
  std::string text = std::string("\x93NUMPY") + version + '\0';
  text += static_cast<char>(header.size());
  text += version == 1 ? std::string(1, '\0') : std::string(3, '\0');
  return text + header + values;
}

TEST(Numpy, ReadsBothByteOrdersAndBothOrders) {
  const Scratch scratch;
  const auto want = torch::tensor({{1., 2., 3.}, {256., 5., 6.}}, torch::kFloat64);
  const std::string shape = ", 'shape': (2, 3), }\n";
  const auto read = [&](const std::string& bytes) {
    put(scratch / "a.npy", bytes);
    return NumpyArray(scratch / "a.npy").read().to(torch::kFloat64);
  };
  const std::string big("\0\1\0\2\0\3\1\0\0\5\0\6", 12), little("\1\0\2\0\3\0\0\1\5\0\6\0", 12),
      columns("\1\0\0\1\2\0\5\0\3\0\6\0", 12);
  EXPECT_TRUE(torch::equal(read(npy("{'descr': '>i2', 'fortran_order': False" + shape, big)), want));
  EXPECT_TRUE(torch::equal(read(npy("{'descr': '<u2', 'fortran_order': False" + shape, little, 2)), want));
  EXPECT_TRUE(torch::equal(read(npy("{'descr': '<i2', 'fortran_order': True" + shape, columns, 3)), want));
  NumpyArray part(scratch / "a.npy");
  EXPECT_TRUE(torch::equal(part.read(1, 2).to(torch::kFloat64), want.slice(0, 1, 2)));
}

TEST(Numpy, RefusesWhatItCannotRead) {
  const Scratch scratch;
  const auto error = [&](const std::string& bytes) {
    put(scratch / "a.npy", bytes);
    return message_of([&] { NumpyArray(scratch / "a.npy").read(); });
  };
  const std::string rest = ", 'fortran_order': False, 'shape': (2,), }\n", values(16, 'x');
  EXPECT_NE(error("text").find("a.npy: not a NumPy array"), std::string::npos);
  EXPECT_NE(error(npy("{'descr': '|O'" + rest, values)).find("type 'O'"), std::string::npos)
      << error(npy("{'descr': '|O'" + rest, values));
  EXPECT_NE(error(npy("{'descr': [('a', '<f8')]" + rest, values)).find("structured array"), std::string::npos);
  EXPECT_NE(error(npy("{'descr': '<f8'" + rest, "x")).find("truncated: its shape needs 16 bytes, 1 are there"),
            std::string::npos);
  EXPECT_NE(error(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", values))
                .find("absurd"),
            std::string::npos);
  EXPECT_NE(error(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", values)).find("single value"),
            std::string::npos);
  EXPECT_NE(error(npy("{'descr': '<f8'" + rest, values).substr(0, 30)).find("damaged or truncated"), std::string::npos);
}

TEST(Numpy, EveryTypeComesBackFromHdf5) {
  const Scratch scratch;
  for (const auto dtype :
       {torch::kFloat64, torch::kFloat32, torch::kFloat16, torch::kInt64, torch::kInt32, torch::kInt16, torch::kInt8,
        torch::kUInt8, torch::kUInt16, torch::kUInt32, torch::kUInt64, torch::kBool}) {
    const auto array = torch::tensor({{0, 1}, {1, 0}, {1, 1}}).to(dtype);
    NumpyWriter writer(scratch / "a.npy", dtype, {3, 2});
    writer.append(array);
    writer.finish();
    const auto table = converted(scratch / "a.npy", scratch / "a.h5");
    EXPECT_TRUE(torch::equal(table.values, array.to(torch::kFloat64))) << dtype;
    EXPECT_EQ(table.columns[0].discrete, !at::isFloatingType(dtype));
    convert_table(scratch / "a.h5", scratch / "b.npy");
    EXPECT_TRUE(torch::equal(NumpyArray(scratch / "b.npy").read().to(torch::kFloat64), table.values)) << dtype;
  }
}

TEST(Numpy, ArchivesCarryAllTables) {
  const Scratch scratch;
  torch::manual_seed(2);
  const auto x = torch::randn({300, 4}, torch::kFloat64), y = torch::arange(300);
  TableWriter writer(scratch / "a.h5");
  writer.begin("/train/x", {{"a", "", false}, {"b", "", false}, {"c", "", false}, {"d", "", false}}, torch::kFloat64);
  writer.append(x);
  writer.begin("/train/label", {{"label", "", true}}, torch::kInt64, true);
  writer.append(y);
  writer.finish();
  convert_table(scratch / "a.h5", scratch / "a.npz");
  const NumpyArchive archive(scratch / "a.npz");
  EXPECT_EQ(archive.names().size(), 2u);
  EXPECT_TRUE(torch::equal(archive.open("train/x").read(), x));
  EXPECT_TRUE(torch::equal(archive.open("train/label").read(), y));
  EXPECT_ERROR(archive.open("train/y"), "there is no such array; the archive holds ");
  convert_table(scratch / "a.npz", scratch / "b.h5");
  EXPECT_TRUE(torch::equal(read_table({scratch / "b.h5", "/train/x", {}}, torch::kFloat64).values, x));
  EXPECT_EQ(scratch.files(), (std::vector<std::string>{"a.h5", "a.npz", "b.h5"}));
  auto bytes = text_of(scratch / "a.npz");
  put(scratch / "cut.npz", bytes.substr(0, bytes.size() / 2));
  EXPECT_ERROR(convert_table(scratch / "cut.npz", scratch / "c.h5"), "cut.npz: cannot open the NumPy archive");
  bytes[bytes.size() / 3] ^= 1;
  put(scratch / "bad.npz", bytes);
  EXPECT_ERROR(convert_table(scratch / "bad.npz", scratch / "c.h5"), "bad.npz:train/");
  EXPECT_FALSE(std::filesystem::exists(scratch / "c.h5"));
}

TEST(Convert, EndingsDecide) {
  const Scratch scratch;
  EXPECT_ERROR(convert_table("a.csv", "b.npy"), "one of them has to be an HDF5 file");
  EXPECT_ERROR(convert_table("a.xls", "b.h5"), "what the ending '.xls' means is not known");
  EXPECT_ERROR(convert_table(scratch / "none.csv", scratch / "b.h5"), "none.csv: cannot open the file");
  EXPECT_ERROR(convert_table(scratch / "none.npy", scratch / "b.h5"), "none.npy: cannot open the file");
  EXPECT_ERROR(convert_table(scratch / "none.npz", scratch / "b.h5"), "none.npz: cannot open");
  EXPECT_TRUE(scratch.files().empty());
}

}  // namespace
}  // namespace diffeo::testing
