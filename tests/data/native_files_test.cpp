// Files that other programs wrote: each ends in numbers or in an Error that names file and object; damaged ones in an
// Error, or in the clean end that the program promises where HDF5 itself crashes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "data/scratch.h"
#include "diffeo/data/damaged_files.h"
#include "diffeo/data/hdf5.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

namespace fs = std::filesystem;

class NativeFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("DIFFEO_TEST_DATA");
    if (!folder) GTEST_SKIP() << "DIFFEO_TEST_DATA is not set";
    root = fs::path(folder) / "native";
  }
  std::vector<std::string> files(uintmax_t largest) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(root))
      if (entry.is_regular_file() && entry.path().extension() != ".tsv" && entry.file_size() <= largest)
        found.push_back(entry.path().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  fs::path root;
};

TEST_F(NativeFiles, EachIsReadOrRefusedByName) {
  int64_t tables = 0, refused = 0;
  const auto all = files(std::numeric_limits<uintmax_t>::max());
  ASSERT_GT(all.size(), 100u);
  for (const auto& file : all) {
    SCOPED_TRACE(file);
    std::vector<TableInfo> found;
    try {
      found = tables_in(file);
    } catch (const Error& error) {
      ++refused;
      EXPECT_TRUE(std::string(error.what()).starts_with(file)) << error.what();
    }
    for (const auto& table : found) {
      SCOPED_TRACE(table.object);
      try {
        const auto rows = std::min<int64_t>(table.rows, 100000);
        const auto read = read_table({file, table.object, {}}, torch::kFloat64, 0, rows, false);
        EXPECT_EQ(read.values.size(0), rows);
        EXPECT_EQ(read.values.size(1), static_cast<int64_t>(table.columns.size()));
        ++tables;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find(table.object), std::string::npos) << error.what();
      }
    }
  }
  EXPECT_GT(tables, 1000);
  EXPECT_LE(refused, 2);  // one was left open for writing
}

TEST_F(NativeFiles, NumbersAreThoseThatH5pyReads) {
  // Sums of all values, by h5py 3.16.0 (HDF5 2.0.0) and NumPy 2.4.6.
  struct Known {
    const char *file, *object;
    int64_t rows, columns;
    double sum;
  };
  const std::vector<Known> known{
#include "data/native_sums.inc"
  };
  ASSERT_GT(known.size(), 10u);
  for (const auto& want : known) {
    SCOPED_TRACE(c10::str(want.file, ":", want.object));
    const auto values =
        read_table({(root / want.file).string(), want.object, {}}, torch::kFloat64, 0, -1, false).values;
    EXPECT_EQ(values.size(0), want.rows);
    EXPECT_EQ(values.size(1), want.columns);
    EXPECT_NEAR(torch::nansum(values).item<double>(), want.sum, 1e-9 * std::abs(want.sum));
  }
}

TEST_F(NativeFiles, UnknownFiltersAreNamed) {
  const auto lz4 = (root / "jhdf/lz4_datasets.hdf5").string(),
             shuffled = (root / "jhdf/bitshuffle_datasets.hdf5").string();
  const auto first = hdf5::open_file(lz4).links().at(0).name, second = hdf5::open_file(shuffled).links().at(0).name;
  EXPECT_ERROR(read_table({lz4, first, {}}), "is compressed by the filter 'lz4' (number 32004)");
  EXPECT_ERROR(read_table({shuffled, second, {}}), "is compressed by the filter 'bitshuffle'");
  EXPECT_ERROR(read_table({lz4, first, {}}), "h5repack");
}

TEST_F(NativeFiles, WhatIsNoTableSaysWhatItIs) {
  EXPECT_ERROR(read_table({(root / "jhdf/test_string_datasets_latest.hdf5").string(), "", {}}),
               "holds string, not numbers");
  EXPECT_ERROR(read_table({(root / "jhdf/opaque_datasets_latest.hdf5").string(), "", {}}),
               "holds opaque values, not numbers");
  EXPECT_ERROR(read_table({(root / "nexus/DLS_i03_i04_NXmx_hdf5_Therm_6_2.nxs").string(), "/entry/data/data", {}}),
               "/entry/data/data: ");
  EXPECT_ERROR(read_table({(root / "jhdf/test_byteshuffle_compressed_datasets_latest.hdf5").string(), "", {}}),
               "already open for write");
}

/// Reads all tables of a file in a process of its own and says how it ended: 0 read, 1 an Error, 2 HDF5 crashed and
/// the program ended as promised, above that a failure.
int read_apart(const std::string& file) {
  const auto child = ::fork();
  if (child == 0) {
    const rlimit memory{rlim_t{8} << 30, rlim_t{8} << 30};
    ::setrlimit(RLIMIT_AS, &memory);
    ::alarm(20);  // a hang ends as a signal
    ::close(2);
    end_cleanly_on_damaged_files();
    int result = 0;
    try {
      for (const auto& table : tables_in(file)) {
        try {
          // Few enough for tensors to start no threads, which a forked process cannot.
          const auto columns = static_cast<int64_t>(table.columns.size());
          read_table({file, table.object, {}}, torch::kFloat64, 0, std::min(table.rows, 30000 / (columns + 1)), false);
        } catch (const Error&) {
          result = 1;
        }
      }
    } catch (const Error&) {
      result = 1;
    } catch (...) {
      result = 3;
    }
    ::_exit(result);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST_F(NativeFiles, DamagedFilesAreRefused) {
  const Scratch scratch;
  const auto sources = files(200 << 10);
  constexpr uint64_t seed = 20;
  std::mt19937_64 random(seed);
  std::map<int, int> ends;
  for (int trial = 0; trial < 300; ++trial) {
    const auto& source = sources[random() % sources.size()];
    SCOPED_TRACE(c10::str("seed ", seed, ", trial ", trial, ", ", source));
    std::ifstream file(source, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    if (trial % 3 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      const auto range = trial % 2 ? bytes.size() : std::min<size_t>(bytes.size(), 4096);  // metadata lie at the start
      for (int i = 0; i < (trial % 3 == 1 ? 1 : 20); ++i) bytes[random() % range] = static_cast<char>(random());
    }
    std::ofstream(scratch / "damaged.h5", std::ios::binary) << bytes;
    const auto end = read_apart(scratch / "damaged.h5");
    EXPECT_LE(end, 2);
    ++ends[end];
  }
  EXPECT_GT(ends[1], 50);
  EXPECT_LE(ends[2], 5) << "HDF5 crashed more often than is known";
}

}  // namespace
}  // namespace diffeo::testing
