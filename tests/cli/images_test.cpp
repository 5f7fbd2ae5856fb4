// Images from HDF5 to a trained flow, samples and pictures; and what is refused in one clear line.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <fstream>

#include "cli/program.h"
#include "diffeo/data/hdf5.h"
#include "diffeo/data/table.h"

namespace diffeo::testing {
namespace {

constexpr auto seed = 31;

/// Flat rows of whole numbers, with what the file says of their shape.
void write_rows(const std::string& file, const Tensor& rows, const std::vector<int64_t>& image_shape) {
  std::vector<Column> columns;
  for (int64_t i = 0; i < rows.size(1); ++i)
    columns.push_back({.name = c10::str("x", i), .unit = "", .discrete = true});
  TableWriter writer(file);
  writer.begin("/x", columns, torch::kInt64);
  writer.append(rows.to(torch::kInt64));
  if (!image_shape.empty()) writer.attribute("/x", "image_shape", image_shape);
  writer.finish();
}

/// A dataset of bytes of any number of dimensions.
void write_bytes(const std::string& file, const Tensor& images) {
  const auto bytes = images.to(torch::kUInt8).contiguous();
  hdf5::NewFile made(file, file, 0, false);
  {
    auto root = made.root();
    auto dataset = root.make_dataset("/x", at::kByte, {.shape = bytes.sizes().vec()});
    dataset.write(at::kByte, std::vector<int64_t>(bytes.dim(), 0), bytes.sizes().vec(), bytes.data_ptr());
  }
  made.close();
}

/// Width and height in the header of a PNG.
std::pair<int64_t, int64_t> png_size(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::array<unsigned char, 24> head{};
  stream.read(reinterpret_cast<char*>(head.data()), head.size());
  if (head[1] != 'P' || head[2] != 'N' || head[3] != 'G') return {0, 0};
  const auto number = [&](size_t at) {
    return (head[at] << 24) + (head[at + 1] << 16) + (head[at + 2] << 8) + head[at + 3];
  };
  return {number(16), number(20)};
}

const std::string quick = " --dequantize all --steps 2 --batch-size 16 --layers 1 --width 4 ";

class Images : public ::testing::Test {
 protected:
  void SetUp() override {
    torch::manual_seed(seed);
    images = torch::randint(256, {60, 8, 8, 3});
  }
  void expect_fine(const std::string& arguments, const std::vector<std::string>& words = {}) {
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 0) << arguments << "\n" << ::testing::PrintToString(outcome);
    for (const auto& word : words)
      EXPECT_NE(outcome.output.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.output;
  }
  void expect_refused(const std::string& arguments, const std::vector<std::string>& words) {
    SCOPED_TRACE("diffeo " + arguments);
    const auto before = folder.files();
    const auto outcome = folder.run(arguments);
    EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
    EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
    for (const auto& word : words)
      EXPECT_NE(outcome.errors.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.errors;
    EXPECT_EQ(folder.files(), before) << "something was written";
  }

  const Folder folder;
  Tensor images;  ///< (N, H, W, C)
};

TEST_F(Images, AreLearnedFromEveryWayInWhichTheyAreStored) {
  write_bytes(folder.path("nhwc.h5"), images);
  write_bytes(folder.path("nchw.h5"), images.permute({0, 3, 1, 2}));
  write_rows(folder.path("flat.h5"), images.flatten(1), {8, 8, 3});
  for (const std::string name : {"nhwc", "nchw", "flat"}) {
    expect_fine("train " + name + ".h5 --flow eiw" + quick + "--flip -o " + name + "_model.h5",
                {"192 columns", "bits per dimension"});
    expect_fine("sample " + name + "_model.h5 -n 7 -o " + name + "_samples.h5");
    const auto info = table_info({folder.path(name + "_samples.h5"), "/x", {}});
    EXPECT_EQ(info.image_shape, name == "nchw" ? (std::vector<int64_t>{3, 8, 8}) : (std::vector<int64_t>{8, 8, 3}));
    expect_fine("plot images " + name + ".h5 --grid 2,3 --magnify 1 -o " + name + ".png");
  }
  EXPECT_EQ(png_size(folder.path("nhwc.png")), (std::pair<int64_t, int64_t>{3 * 10 + 2, 2 * 10 + 2}));
  const auto bytes = [&](const std::string& name) {
    std::ifstream stream(folder.path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  EXPECT_EQ(bytes("nhwc.png"), bytes("nchw.png"));
  EXPECT_EQ(bytes("nhwc.png"), bytes("flat.png"));
  expect_fine("plot images flat_samples.h5 -o samples.png");
  expect_fine("plot interpolation flat_model.h5 flat.h5 --grid 2,5 --magnify 2 -o way.png");
  EXPECT_EQ(png_size(folder.path("way.png")), (std::pair<int64_t, int64_t>{2 * 52, 2 * 22}));
}

TEST_F(Images, EvaluateWritesBitsPerDimensionOfEach) {
  write_rows(folder.path("flat.h5"), images.flatten(1), {8, 8, 3});
  expect_fine("train flat.h5 --flow glow-image" + quick + "-o model.h5");
  expect_fine("evaluate model.h5 flat.h5 -o out.h5", {"bits per dimension", "/bits_per_dimension"});
  const auto log_prob = read_table({folder.path("out.h5"), "/log_prob", {}}, torch::kFloat64).values,
             bits = read_table({folder.path("out.h5"), "/bits_per_dimension", {}}, torch::kFloat64).values;
  ASSERT_EQ(bits.sizes(), at::IntArrayRef({60, 1}));
  EXPECT_TRUE(torch::allclose(bits, -log_prob / (192 * std::log(2.0)), 1e-5, 1e-5));
}

TEST_F(Images, TheNoiseCanBeLearned) {
  write_rows(folder.path("flat.h5"), images.flatten(1), {8, 8, 3});
  expect_fine(
      "train flat.h5 --flow eiw --dequantize variational --steps 2 --batch-size 16 --layers 1 --width 4 -o m.h5",
      {"bits per dimension"});
  expect_fine("evaluate m.h5 flat.h5 --paths 3", {"bits per dimension"});
  expect_fine("sample m.h5 -n 4 -o samples.h5");
  const auto samples = read_table({folder.path("samples.h5"), "/x", {}}, torch::kFloat32).values;
  EXPECT_TRUE(torch::equal(samples, samples.floor()));
}

TEST_F(Images, FlipsOfATableAreDoneAsTheErrorAdvises) {
  write_rows(folder.path("table.h5"), images.flatten(1).narrow(1, 0, 16), {});
  expect_fine("train table.h5 --flow nsf --steps 2 --flip --image 1,4,4 -o model.h5", {"16 columns"});
}

TEST_F(Images, MistakesAreNamedInOneLine) {
  write_rows(folder.path("misfit.h5"), images.flatten(1), {28, 28});
  write_rows(folder.path("odd.h5"), images.flatten(1).narrow(1, 0, 49), {7, 7});
  write_rows(folder.path("table.h5"), images.flatten(1).narrow(1, 0, 16), {});
  write_rows(folder.path("flat.h5"), images.flatten(1), {8, 8, 3});
  const auto train = [](const std::string& rest) { return "train " + rest + quick + "-o model.h5"; };
  expect_refused(train("misfit.h5 --flow eiw"), {"misfit.h5", "784 values", "192 columns"});
  expect_refused(train("odd.h5 --flow eiw"), {"--flow eiw", "image", "7 x 7", "even"});
  expect_refused(train("table.h5 --flow eiw"), {"image", "--image C,H,W"});
  expect_refused(train("table.h5 --flow nsf --flip"), {"--flip", "table.h5", "--image C,H,W"});
  expect_refused(train("flat.h5 --flow eiw --order entropy"), {"order", "entropy", "negentropy"});
  expect_refused(train("flat.h5 --flow eiw --levels 4"), {"levels", "8 x 8", "at most 3"});
  expect_refused(train("flat.h5 --flow eiw --image 3,8"), {"--image", "C,H,W"});
  expect_refused("train table.h5 --flow nsf --dequantize variational --steps 2 -o model.h5",
                 {"--dequantize variational"});
  expect_refused("plot images table.h5 -o grid.png", {"table.h5", "--image C,H,W"});
  expect_refused("plot images flat.h5 -o grid.svg", {"grid.svg", ".png"});
  expect_refused("plot images flat.h5 --grid 0,4 -o grid.png", {"--grid"});
  expect_refused("plot images flat.h5 --grid 100000,100000 -o grid.png", {"--grid", "at most"});
  expect_refused("plot images flat.h5 --range 5,5 -o grid.png", {"--range"});
  expect_refused("plot images flat.h5 -o nowhere/grid.png", {"nowhere"});
}

}  // namespace
}  // namespace diffeo::testing
