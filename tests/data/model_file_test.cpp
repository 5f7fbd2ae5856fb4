// A model file is read as it was written, bit for bit, or not at all.
#include "diffeo/data/model_file.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "data/scratch.h"

namespace diffeo::testing {
namespace {

ModelFile example() {
  torch::manual_seed(1);
  ModelFile model;
  model.spec = {{"type", "flow"}, {"layers", {{{"type", "affine"}, {"cap", 0.1}}}}};
  model.state = {{"layers.0.net.weight", torch::randn({7, 5})},
                 {"layers.0.double", torch::randn({3, 4}, torch::kFloat64)},
                 {"layers.0.half", torch::randn({6}).to(torch::kHalf)},
                 {"layers.0.bfloat", torch::randn({6}).to(torch::kBFloat16)},
                 {"layers.0.order", torch::tensor({2, 0, 1})},
                 {"layers.0.bytes", torch::tensor({1, 255}, torch::kByte)},
                 {"layers.0.mask", torch::tensor({true, false, true})},
                 {"initialised", torch::tensor(true)},
                 {"steps", torch::tensor(12)},
                 {"empty", torch::empty({0, 3})},
                 {"special", torch::tensor({NAN, INFINITY, -0.f, 1e-45f})}};
  model.columns = {{"mass", "GeV", false}, {"n", "", true}};
  model.context_columns = {{"angle \xC3\xA9", "rad", false}};
  model.metadata = {{"source", "a test"}, {"rows", 12}};
  model.history = {{{"step", 1}, {"loss", 1.0 / 3}}, {{"step", 2}, {"loss", 0.1}}};
  model.training = {{"step", 2}, {"seed", 18446744073709551615ull}};
  model.training_state = {
      {"current/a", torch::randn({2})}, {"best/a", torch::randn({2})}, {"current/b", torch::randn({2})}};
  return model;
}

void expect_equal(const NamedTensors& got, const NamedTensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first);
    ASSERT_EQ(got[i].second.scalar_type(), want[i].second.scalar_type()) << got[i].first;
    ASSERT_EQ(got[i].second.sizes(), want[i].second.sizes()) << got[i].first;
    if (want[i].second.numel() == 0) continue;  // memcmp wants memory even where it compares nothing
    EXPECT_EQ(std::memcmp(got[i].second.data_ptr(), want[i].second.data_ptr(), got[i].second.nbytes()), 0)
        << got[i].first;
  }
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void put(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(ModelFile, IsReadAsItWasWritten) {
  const Scratch scratch;
  const auto model = example();
  write_model(scratch / "m.h5", model);
  const auto read = read_model(scratch / "m.h5");
  EXPECT_EQ(read.version, ModelFile::current_version);
  EXPECT_EQ(read.spec.dump(), model.spec.dump());
  EXPECT_EQ(read.columns, model.columns);
  EXPECT_EQ(read.context_columns, model.context_columns);
  EXPECT_EQ(read.metadata, model.metadata);
  EXPECT_EQ(read.history, model.history);
  EXPECT_EQ(read.training, model.training);
  expect_equal(read.state, model.state);
  expect_equal(read.training_state, model.training_state);
  EXPECT_TRUE(is_model_file(scratch / "m.h5"));
  EXPECT_EQ(scratch.files(), std::vector<std::string>{"m.h5"});
}

TEST(ModelFile, TheSameModelMakesTheSameBytes) {
  const Scratch scratch;
  write_model(scratch / "a.h5", example());
  // HDF5 notes the second in which an object is made, unless it is told not to.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  write_model(scratch / "b.h5", example());
  EXPECT_TRUE(bytes_of(scratch / "a.h5") == bytes_of(scratch / "b.h5"));
}

TEST(ModelFile, ATruncatedFileIsRefused) {
  const Scratch scratch;
  write_model(scratch / "m.h5", example());
  const auto whole = bytes_of(scratch / "m.h5");
  for (int part = 0; part < 50; ++part) {
    SCOPED_TRACE(part);
    put(scratch / "cut.h5", whole.substr(0, whole.size() * part / 50));
    EXPECT_ERROR(read_model(scratch / "cut.h5"), part == 0 ? "not a model file" : "cut.h5: ");
  }
  put(scratch / "cut.h5", whole.substr(0, whole.size() - 1));
  EXPECT_ERROR(read_model(scratch / "cut.h5"), "is truncated");
  put(scratch / "cut.h5", whole + "x");
  EXPECT_ERROR(read_model(scratch / "cut.h5"), "is damaged");
}

TEST(ModelFile, AFlippedBitIsNoticed) {
  const Scratch scratch;
  write_model(scratch / "m.h5", example());
  const auto whole = bytes_of(scratch / "m.h5");
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const auto place = i < 100 ? i : random() % whole.size();
    auto bytes = whole;
    bytes[place] = static_cast<char>(bytes[place] ^ 1 << random() % 8);
    SCOPED_TRACE(place);
    put(scratch / "bad.h5", bytes);
    EXPECT_ERROR(read_model(scratch / "bad.h5"), "bad.h5: ");
  }
}

TEST(ModelFile, AFileOfANewerProgramIsRefusedByName) {
  const Scratch scratch;
  write_model(scratch / "m.h5", example());
  auto bytes = bytes_of(scratch / "m.h5");
  bytes.replace(bytes.find("version 1"), 9, "version 7");
  put(scratch / "m.h5", bytes);
  EXPECT_ERROR(read_model(scratch / "m.h5"), "written by a newer diffeo: its format has version 7");
}

TEST(ModelFile, AnInterruptedWriteLeavesTheOldFile) {
  const Scratch scratch;
  auto model = example();
  write_model(scratch / "m.h5", model);
  const auto before = bytes_of(scratch / "m.h5");
  put(scratch / "m.h5.part", "left by a process that was killed");
  EXPECT_EQ(read_model(scratch / "m.h5").state.size(), model.state.size());
  model.state.emplace_back("broken", Tensor());
  EXPECT_ERROR(write_model(scratch / "m.h5", model), "m.h5:/state/broken");
  EXPECT_EQ(bytes_of(scratch / "m.h5"), before);
  EXPECT_EQ(scratch.files(), std::vector<std::string>{"m.h5"});
}

TEST(ModelFile, OtherFilesAreNotModels) {
  const Scratch scratch;
  EXPECT_FALSE(is_model_file(scratch / "none.h5"));
  put(scratch / "text.h5", std::string(2000, 'a'));
  EXPECT_FALSE(is_model_file(scratch / "text.h5"));
  EXPECT_ERROR(read_model(scratch / "text.h5"), "text.h5: not a model file");
  errno = EACCES;  // what an earlier call left there is not told
  EXPECT_ERROR(read_model(scratch / "none.h5"), "none.h5: cannot open the file: No such file");
  TableWriter writer(scratch / "table.h5");
  writer.begin("/x", {{"a", "", false}}, torch::kFloat32);
  writer.finish();
  EXPECT_FALSE(is_model_file(scratch / "table.h5"));
  EXPECT_ERROR(read_model(scratch / "table.h5"), "table.h5: not a model file");
}

}  // namespace
}  // namespace diffeo::testing
