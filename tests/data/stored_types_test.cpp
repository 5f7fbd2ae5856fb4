// Whatever way HDF5 has of storing numbers, the table reader gives the numbers back, or says what is in the way.
#define H5_USE_110_API
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "data/scratch.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

/// A file made by HDF5's own calls. Identifiers are left to the end of the file's life: tests are short.
struct Made {
  explicit Made(const std::string& path) : file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~Made() {
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    std::vector<hid_t> open(H5Fget_obj_count(file, H5F_OBJ_DATASET | H5F_OBJ_GROUP));
    H5Fget_obj_ids(file, H5F_OBJ_DATASET | H5F_OBJ_GROUP, open.size(), open.data());
    for (const auto id : open) H5Idec_ref(id);
    H5Fclose(file);
  }
  hid_t dataset(const char* name, hid_t type, std::vector<hsize_t> dims, hid_t creation = H5P_DEFAULT) const {
    const auto space = H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr);
    const auto id = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Sclose(space);
    return id;
  }
  template <class T>
  void write(const char* name, hid_t stored, hid_t memory, std::vector<hsize_t> dims, const std::vector<T>& values,
             hid_t creation = H5P_DEFAULT) const {
    ASSERT_GE(H5Dwrite(dataset(name, stored, dims, creation), memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  }
  hid_t file;
};

hid_t half(bool big_endian) {
  const auto type = H5Tcopy(big_endian ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
  H5Tset_fields(type, 15, 10, 5, 0, 10);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, 15);
  return type;
}

Tensor read(const std::string& file, const std::string& object, torch::Dtype dtype = torch::kFloat64) {
  return read_table({file, object, {}}, dtype).values;
}

std::vector<std::string> names_of(const TableInfo& table) {
  std::vector<std::string> names;
  for (const auto& column : table.columns) names.push_back(column.name);
  return names;
}

TEST(StoredTypes, NumbersOfEverySizeAndByteOrder) {
  const Scratch scratch;
  const std::vector<double> values{0, 1, 2, 100, 127, 5};
  const auto want = torch::tensor(values, torch::kFloat64).view({3, 2});
  struct Stored {
    hid_t type;
    const char* name;
    bool discrete;
  };
  const auto file = scratch / "t.h5";
  const std::vector<Stored> all{{H5T_STD_I8LE, "int8", true},
                                {H5T_STD_I8BE, "int8", true},
                                {H5T_STD_I16LE, "int16", true},
                                {H5T_STD_I16BE, "int16 (big endian)", true},
                                {H5T_STD_I32BE, "int32 (big endian)", true},
                                {H5T_STD_I64LE, "int64", true},
                                {H5T_STD_I64BE, "int64 (big endian)", true},
                                {H5T_STD_U8LE, "uint8", true},
                                {H5T_STD_U16BE, "uint16 (big endian)", true},
                                {H5T_STD_U32LE, "uint32", true},
                                {H5T_STD_U64BE, "uint64 (big endian)", true},
                                {half(false), "float16", false},
                                {half(true), "float16 (big endian)", false},
                                {H5T_IEEE_F32LE, "float32", false},
                                {H5T_IEEE_F32BE, "float32 (big endian)", false},
                                {H5T_IEEE_F64BE, "float64 (big endian)", false},
                                {H5T_NATIVE_LDOUBLE, "float80", false}};
  {
    const Made made(file);
    for (size_t i = 0; i < all.size(); ++i)
      made.write(c10::str("x", i).c_str(), all[i].type, H5T_NATIVE_DOUBLE, {3, 2}, values);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    SCOPED_TRACE(all[i].name);
    const TableSource source{file, c10::str("x", i), {}};
    EXPECT_TRUE(torch::equal(read_table(source, torch::kFloat64).values, want));
    EXPECT_TRUE(torch::equal(read_table(source, torch::kFloat32, 1).values, want.slice(0, 1).to(torch::kFloat32)));
    const auto info = table_info(source);
    EXPECT_EQ(info.dtype, all[i].name);
    EXPECT_EQ(info.columns[0].discrete, all[i].discrete);
    if (all[i].discrete)
      EXPECT_TRUE(torch::equal(read_table(source, torch::kInt64).values, want.to(torch::kInt64)));
    else
      EXPECT_ERROR(read_table(source, torch::kInt64), "does not hold integers");
  }
}

TEST(StoredTypes, LargeIntegersAreRoundedOrRefused) {
  const Scratch scratch;
  {
    const Made made(scratch / "t.h5");
    made.write<uint64_t>("x", H5T_STD_U64LE, H5T_NATIVE_UINT64, {2}, {(1ull << 53) + 1, ~0ull});
  }
  const auto values = read(scratch / "t.h5", "x");
  EXPECT_EQ(values[0].item<double>(), 9007199254740992.0);
  EXPECT_EQ(values[1].item<double>(), 18446744073709551616.0);
  EXPECT_ERROR(read(scratch / "t.h5", "x", torch::kInt64), "beyond int64");
}

TEST(StoredTypes, FiltersOfHdf5AreUndone) {
  const Scratch scratch;
  std::vector<int> values(1000);
  for (int i = 0; i < 1000; ++i) values[i] = i * i % 977;
  const std::vector<std::pair<const char*, std::function<herr_t(hid_t)>>> filters{
      {"deflate", [](hid_t list) { return H5Pset_deflate(list, 6); }},
      {"shuffle", [](hid_t list) { return H5Pset_shuffle(list); }},
      {"fletcher32", [](hid_t list) { return H5Pset_fletcher32(list); }},
      {"nbit", [](hid_t list) { return H5Pset_nbit(list); }},
      {"scaleoffset", [](hid_t list) { return H5Pset_scaleoffset(list, H5Z_SO_INT, 0); }},
      {"szip", [](hid_t list) {
         return H5Zfilter_avail(H5Z_FILTER_SZIP) > 0 ? H5Pset_szip(list, H5_SZIP_NN_OPTION_MASK, 16) : 0;
       }}};
  {
    const Made made(scratch / "t.h5");
    for (const auto& [name, add] : filters) {
      const auto list = H5Pcreate(H5P_DATASET_CREATE);
      const hsize_t chunk[] = {37, 4};
      H5Pset_chunk(list, 2, chunk);
      ASSERT_GE(add(list), 0) << name;
      made.write(name, H5T_STD_I32LE, H5T_NATIVE_INT, {250, 4}, values, list);
    }
  }
  const auto want = torch::tensor(values).view({250, 4});
  for (const auto& [name, add] : filters) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(torch::equal(read(scratch / "t.h5", name), want.to(torch::kFloat64)));
    EXPECT_TRUE(torch::equal(read_table({scratch / "t.h5", name, {"2"}}, torch::kInt64, 30, 120).values,
                             want.slice(0, 30, 120).slice(1, 2, 3).to(torch::kInt64)));
  }
}

TEST(StoredTypes, FieldsOfACompoundAreColumns) {
  const Scratch scratch;
  struct Row {
    double energy;
    float momentum[3];
    int8_t good;
    char word[4];
    struct {
      int32_t run, event;
    } id;
    uint8_t bits;
  };
  const auto boolean = H5Tenum_create(H5T_NATIVE_INT8);
  for (const int8_t value : {0, 1}) H5Tenum_insert(boolean, value ? "TRUE" : "FALSE", &value);
  const auto text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 4);
  const hsize_t three = 3;
  const auto id = H5Tcreate(H5T_COMPOUND, 8);
  H5Tinsert(id, "run", 0, H5T_NATIVE_INT32);
  H5Tinsert(id, "event", 4, H5T_NATIVE_INT32);
  const auto type = H5Tcreate(H5T_COMPOUND, sizeof(Row));
  H5Tinsert(type, "energy", HOFFSET(Row, energy), H5T_NATIVE_DOUBLE);
  H5Tinsert(type, "p", HOFFSET(Row, momentum), H5Tarray_create2(H5T_NATIVE_FLOAT, 1, &three));
  H5Tinsert(type, "good", HOFFSET(Row, good), boolean);
  H5Tinsert(type, "word", HOFFSET(Row, word), text);
  H5Tinsert(type, "id", HOFFSET(Row, id), id);
  H5Tinsert(type, "bits", HOFFSET(Row, bits), H5T_NATIVE_B8);
  {
    const Made made(scratch / "t.h5");
    made.write<Row>("rows", type, type, {2},
                    {{1.5, {1, 2, 3}, 1, "abc", {7, 8}, 200}, {2.5, {4, 5, 6}, 0, "de", {9, 10}, 3}});
  }
  const auto info = table_info({scratch / "t.h5", "", {}});
  EXPECT_EQ(info.kind, "compound");
  EXPECT_EQ(names_of(info),
            (std::vector<std::string>{"energy", "p[0]", "p[1]", "p[2]", "good", "id.run", "id.event", "bits"}));
  EXPECT_TRUE(info.columns[4].discrete && info.columns[7].discrete && !info.columns[1].discrete);
  EXPECT_TRUE(torch::equal(
      read(scratch / "t.h5", "rows"),
      torch::tensor({{1.5, 1., 2., 3., 1., 7., 8., 200.}, {2.5, 4., 5., 6., 0., 9., 10., 3.}}, torch::kFloat64)));
  EXPECT_TRUE(torch::equal(read_table({scratch / "t.h5", "rows", {"bits", "p[2]", "id.run"}}, torch::kFloat64).values,
                           torch::tensor({{200., 3., 7.}, {3., 6., 9.}}, torch::kFloat64)));
}

TEST(StoredTypes, AGroupOfColumnsIsATable) {
  const Scratch scratch;
  {
    const Made made(scratch / "t.h5");
    H5Gclose(H5Gcreate2(made.file, "sky", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    made.write<float>("sky/mag", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {3}, {1, 2, 3});
    made.write<int>("sky/id", H5T_STD_I32LE, H5T_NATIVE_INT, {3}, {7, 8, 9});
    made.write<int>("other", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {7, 8});
  }
  const auto info = table_info({scratch / "t.h5", "sky", {}});
  EXPECT_EQ(info.kind, "group of columns");
  EXPECT_EQ(info.dtype, "mixed");
  EXPECT_EQ(names_of(info), (std::vector<std::string>{"id", "mag"}));
  EXPECT_TRUE(torch::equal(read_table({scratch / "t.h5", "sky", {"mag", "id"}}, torch::kFloat64).values,
                           torch::tensor({{1., 7.}, {2., 8.}, {3., 9.}}, torch::kFloat64)));
  EXPECT_EQ(tables_in(scratch / "t.h5").size(), 2u);
  EXPECT_ERROR(read(scratch / "t.h5", ""), "has 2 tables; name one of ");
  {
    const Made made(scratch / "u.h5");
    made.write<int>("a", H5T_STD_I32LE, H5T_NATIVE_INT, {3}, {1, 2, 3});
    made.write<int>("b", H5T_STD_I32LE, H5T_NATIVE_INT, {2}, {7, 8});
  }
  EXPECT_ERROR(read(scratch / "u.h5", "/"), "u.h5:/b: has 2 rows, but 'a' has 3");
}

TEST(StoredTypes, LinksAreFollowedAndCyclesEnd) {
  const Scratch scratch;
  {
    const Made made(scratch / "target.h5");
    made.write<int>("x", H5T_STD_I32LE, H5T_NATIVE_INT, {3}, {1, 2, 3});
  }
  {
    const Made made(scratch / "t.h5");
    made.write<int>("y", H5T_STD_I32LE, H5T_NATIVE_INT, {2, 2}, {1, 2, 3, 4});
    H5Gclose(H5Gcreate2(made.file, "g", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Lcreate_hard(made.file, "/", made.file, "g/up", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/y", made.file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", made.file, "dangling", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("target.h5", "/x", made.file, "outside", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external("missing.h5", "/x", made.file, "lost", H5P_DEFAULT, H5P_DEFAULT);
  }
  EXPECT_EQ(read(scratch / "t.h5", "soft").sum().item<double>(), 10);
  EXPECT_EQ(read(scratch / "t.h5", "outside").sum().item<double>(), 6);
  EXPECT_EQ(read(scratch / "t.h5", "g/up/g/up/y").sum().item<double>(), 10);
  EXPECT_EQ(tables_in(scratch / "t.h5").size(), 2u);
  EXPECT_ERROR(read(scratch / "t.h5", "dangling"), "t.h5: no object '/dangling'");
  EXPECT_ERROR(read(scratch / "t.h5", "lost"), "t.h5: no object '/lost'");
}

TEST(StoredTypes, AVirtualDatasetWithoutItsPartsIsRefused) {
  const Scratch scratch;
  const auto make = [&](const std::string& source) {
    const Made made(scratch / "v.h5");
    const hsize_t three = 3;
    const auto space = H5Screate_simple(1, &three, nullptr);
    const auto list = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_virtual(list, space, source.c_str(), "/x", space);
    made.dataset("v", H5T_STD_I32LE, {3}, list);
  };
  {
    const Made made(scratch / "part.h5");
    made.write<int>("x", H5T_STD_I32LE, H5T_NATIVE_INT, {3}, {1, 2, 3});
  }
  make("part.h5");
  EXPECT_EQ(read(scratch / "v.h5", "v").sum().item<double>(), 6);
  make("gone.h5");
  EXPECT_ERROR(read(scratch / "v.h5", "v"),
               "v.h5:/v: is a virtual dataset with a part in '/x' of the file 'gone.h5', which is missing");
}

TEST(StoredTypes, AbsurdSizesAreRefusedBeforeAnythingIsAllocated) {
  const Scratch scratch;
  {
    const Made made(scratch / "t.h5");
    const auto list = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {1000, 10};
    H5Pset_chunk(list, 2, chunk);
    made.dataset("rows", H5T_IEEE_F64LE, {hsize_t{1} << 50, 10}, list);
    const hsize_t square[] = {10, 10};
    H5Pset_chunk(list, 2, square);
    made.dataset("wide", H5T_IEEE_F64LE, {10, hsize_t{1} << 40}, list);
  }
  EXPECT_ERROR(read(scratch / "t.h5", "rows"), "t.h5:/rows: 1125899906842624 rows of 10 numbers need ");
  EXPECT_EQ(read_table({scratch / "t.h5", "rows", {}}, torch::kFloat32, 5, 8).values.size(0), 3);
  EXPECT_ERROR(read(scratch / "t.h5", "wide"), "too many to be columns");
}

TEST(StoredTypes, NamesAndUnitsComeFromAttributes) {
  const Scratch scratch;
  const auto put = [](hid_t dataset, const char* name, const std::string& text) {
    const auto type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, text.size());
    const auto id = H5Acreate2(dataset, name, type, H5Screate(H5S_SCALAR), H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(id, type, text.data());
    H5Aclose(id);
  };
  {
    const Made made(scratch / "t.h5");
    const auto a = made.dataset("a", H5T_IEEE_F64LE, {2, 2});
    put(a, "column_names", "ra, dec");
    put(a, "units", "deg");
    const auto b = made.dataset("b", H5T_IEEE_F64LE, {2, 2});
    put(b, "columns", R"(["mass", "n"])");
    put(b, "units_json", R"({"mass": "GeV"})");
    const auto c = made.dataset("c", H5T_IEEE_F64LE, {2, 2});
    put(c, "columns", "one");  // does not fit
    put(c, "units",
        "\xB0"
        "C");  // Latin-1
  }
  EXPECT_EQ(table_info({scratch / "t.h5", "a", {}}).columns,
            (std::vector<Column>{{"ra", "deg", false}, {"dec", "deg", false}}));
  EXPECT_EQ(table_info({scratch / "t.h5", "b", {}}).columns,
            (std::vector<Column>{{"mass", "GeV", false}, {"n", "", false}}));
  EXPECT_EQ(table_info({scratch / "t.h5", "c", {}}).columns, (std::vector<Column>{{"x0",
                                                                                   "\xC2\xB0"
                                                                                   "C",
                                                                                   false},
                                                                                  {"x1",
                                                                                   "\xC2\xB0"
                                                                                   "C",
                                                                                   false}}));
}

TEST(TableWriter, NamesOfManyColumnsLieBesideTheTable) {
  const Scratch scratch;
  std::vector<Column> columns(5000);
  for (size_t i = 0; i < columns.size(); ++i) columns[i] = {c10::str("gene ", i), "counts", false};
  TableWriter writer(scratch / "t.h5");
  writer.begin("/train/x", columns, torch::kFloat32);
  writer.append(torch::ones({2, 5000}));
  writer.finish();
  EXPECT_TRUE(table_info({scratch / "t.h5", "/train/x", {}}).columns == columns);  // too many to print
}

TEST(TableWriter, ATruncatedTableNeverGivesWrongNumbers) {
  const Scratch scratch;
  torch::manual_seed(1);
  const auto rows = torch::randn({4000, 5});
  TableWriter writer(scratch / "t.h5");
  writer.begin("/x", std::vector<Column>(5, {"a", "", false}), torch::kFloat32);
  writer.append(rows);
  writer.finish();
  std::ifstream file(scratch / "t.h5", std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(file), {}};
  for (int part = 0; part < 50; ++part) {
    SCOPED_TRACE(part);
    std::ofstream(scratch / "cut.h5", std::ios::binary) << whole.substr(0, whole.size() * part / 50);
    EXPECT_ERROR(read(scratch / "cut.h5", "/x"), "cut.h5: ");
  }
}

TEST(TableWriter, AFullDiskIsAnErrorAndLeavesNothing) {
  const Scratch scratch;
  const auto child = ::fork();
  if (child == 0) {  // the limit holds for a whole process
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int result = 0;
    try {
      TableWriter writer(scratch / "t.h5");
      writer.begin("/x", {{"a", "", false}}, torch::kFloat64);
      for (int i = 0; i < 100; ++i) writer.append(torch::rand({20000, 1}, torch::kFloat64));
      writer.finish();
      result = 1;
    } catch (const Error& error) {
      result = std::string(error.what()).find("File too large") == std::string::npos ? 2 : 0;
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(scratch.files().empty());
}

}  // namespace
}  // namespace diffeo::testing
