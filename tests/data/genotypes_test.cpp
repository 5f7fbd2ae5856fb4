#include "diffeo/data/genotypes.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "data/scratch.h"
#include "diffeo/data/hdf5.h"
#include "diffeo/data/relatedness.h"

namespace diffeo::testing {
namespace {

const auto f64 = torch::TensorOptions(torch::kFloat64);

/// A file with a matrix or vector under each name, and strings at the root.
void write_file(const std::string& path, const std::vector<std::pair<std::string, Tensor>>& objects,
                const std::vector<std::pair<std::string, std::vector<std::string>>>& strings = {}) {
  hdf5::NewFile file(path, path, 0, false);
  auto root = file.root();
  for (const auto& [name, values] : objects) {
    if (const auto slash = name.rfind('/'); slash > 0) root.make_group(name.substr(0, slash));
    auto dataset = root.make_dataset(name, values.scalar_type(),
                                     {.shape = values.sizes().vec(), .growing = false, .chunk = {}, .deflate = 0});
    const auto flat = values.contiguous();
    dataset.write(values.scalar_type(), hdf5::Shape(values.dim(), 0), values.sizes().vec(), flat.data_ptr());
  }
  for (const auto& [name, texts] : strings) root.write_strings(name, texts);
}

TEST(Genotypes, JoinStoredSplitsAndScale) {
  const Scratch scratch;
  const auto file = scratch / "g.h5";
  write_file(file,
             {{"/train/x", torch::tensor({{0, 100}, {200, 50}}, torch::kUInt8)},
              {"/test/x", torch::tensor({{100, 0}}, torch::kUInt8)},
              {"/position", torch::tensor({7, 90}, torch::kInt64)}},
             {{"/columns", {"rs1", "rs2"}}, {"/chromosome", {"1", "X"}}});
  const auto genotypes = read_genotypes(file, "x", 100);
  EXPECT_TRUE(
      torch::allclose(genotypes.dosages, torch::tensor({{0.0, 1.0}, {2.0, 0.5}, {1.0, 0.0}}).to(torch::kFloat32)));
  EXPECT_EQ(genotypes.markers[1].name, "rs2");
  EXPECT_EQ(genotypes.markers[1].chromosome, "X");
  EXPECT_EQ(genotypes.markers[1].position, 90);
  EXPECT_EQ(read_genotypes(file, "/train/x", 100).dosages.size(0), 3);
  EXPECT_ERROR(read_genotypes(file, "x"), "row 0, marker 'rs2': the dosage 100 is outside of [0, 2]");
  EXPECT_ERROR(read_genotypes(file, "y"), "has neither /y nor /train/y");
}

TEST(Relatedness, IsAMatrixOrAFactorDenseOrSparse) {
  const Scratch scratch;
  const auto file = scratch / "k.h5";
  const auto k = torch::tensor({{1.0, 0.5, 0.0}, {0.5, 1.0, 0.0}, {0.0, 0.0, 1.0}}, f64);
  const auto l = torch::tensor({{1.0, 0.0}, {0.6, 0.8}, {0.0, 1.0}}, f64);
  write_file(file, {{"/K", k},
                    {"/L", l},
                    // L by rows.
                    {"/sparse/data", torch::tensor({1.0, 0.6, 0.8, 1.0}, f64)},
                    {"/sparse/indices", torch::tensor({0, 0, 1, 1}, torch::kInt64)},
                    {"/sparse/indptr", torch::tensor({0, 1, 3, 4}, torch::kInt64)},
                    {"/broken/data", torch::tensor({1.0}, f64)},
                    {"/broken/indices", torch::tensor({0}, torch::kInt64)},
                    {"/broken/indptr", torch::tensor({0, 2}, torch::kInt64)}});
  EXPECT_TRUE(read_relatedness(file + ":/K").matrix.equal(k));
  EXPECT_TRUE(read_relatedness(file + ":/L").factor.equal(l));
  EXPECT_TRUE(read_relatedness(file + ":/sparse").factor.equal(l));
  EXPECT_TRUE(torch::allclose(read_relatedness(file + ":/sparse").dense(), l.matmul(l.t())));
  EXPECT_ERROR(read_relatedness(file + ":/broken"), "indptr does not go from 0 to 1");
}

TEST(Relatedness, SaysWhatIsWrong) {
  const Scratch scratch;
  const auto file = scratch / "k.h5";
  auto skew = torch::eye(3, f64), gap = torch::eye(3, f64);
  skew[0][2] = 0.25;
  gap[1][1] = std::nan("");
  write_file(file, {{"/wide", torch::ones({2, 3}, f64)}, {"/skew", skew}, {"/gap", gap}});
  EXPECT_ERROR(read_relatedness(file + ":/wide"), ":/wide: is 2 x 3; expected a square relatedness matrix");
  EXPECT_ERROR(read_relatedness(file + ":/skew"), "must be symmetric, but entry (0, 2) is 0.25 and (2, 0) is 0");
  EXPECT_ERROR(read_relatedness(file + ":/gap"), "gap");
  EXPECT_ERROR(read_relatedness(file + ":/none"), "there is no such object");
  EXPECT_ERROR(read_relatedness(file), "expected FILE.h5:/OBJECT");
}

}  // namespace
}  // namespace diffeo::testing
