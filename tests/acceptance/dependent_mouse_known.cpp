// The heterogeneous stock mice, with the identity transform: an established program's figures for its own demonstration
// (GEMMA 0.98.5: centred relatedness matrix, univariate linear mixed model of the first phenotype) within 1 %. The
// dosages at hand are rounded to 0.01.
#include <torch/types.h>

#include <cmath>

#include "accept.h"
#include "diffeo/data/genotypes.h"
#include "diffeo/data/relatedness.h"
#include "diffeo/trainers/genetics.h"
#include "diffeo/trainers/mixed_model.h"

namespace {

using namespace diffeo;

struct Known {
  const char* marker;
  double frequency, beta, standard_error, lambda, p;
};
constexpr Known known[] = {{"rs3683945", 0.443, -7.788665e-02, 6.193502e-02, 4.317993, 2.087616e-01},
                           {"rs3707673", 0.443, -6.654282e-02, 6.210234e-02, 4.316144, 2.841271e-01},
                           {"rs6269442", 0.365, -5.344241e-02, 5.377464e-02, 4.323611, 3.204804e-01},
                           {"rs6336442", 0.443, -6.770154e-02, 6.209267e-02, 4.315713, 2.757541e-01},
                           {"rs13475700", 0.127, -5.659089e-02, 7.175374e-02, 4.340145, 4.304306e-01}};
constexpr double known_matrix[3][3] = {
    {0.3350590, -0.0227226, 0.0103535}, {-0.0227226, 0.3035960, -0.0253762}, {0.0103535, -0.0253762, 0.3536100}};

}  // namespace

int main() {
  diffeo::testing::Acceptance accept;
  const auto file = diffeo::testing::data_file("mouse_hs1940");
  const auto close = [&](const std::string& name, double value, double want, double within = 0.01) {
    std::printf("%s: %.7g, known %.7g\n", name.c_str(), value, want);
    accept.at_most("dependent_mouse_" + name + "_relative_error", std::abs(value / want - 1), within);
  };
  // Individuals in the order of the source, which the matrix has.
  const auto order = read_all_rows(file, "index", {}, torch::kInt64).values.flatten().argsort();
  const auto genotypes = read_genotypes(file, "x");
  const auto dosages = genotypes.dosages.index_select(0, order);
  const auto outcome = read_all_rows(file, "outcome", {"0"}).values.flatten().index_select(0, order);
  const auto measured = torch::isnan(outcome).logical_not().nonzero().flatten();
  const auto markers = summary_of_markers(dosages.index_select(0, measured));
  const auto used = markers.used.nonzero().flatten();
  close("individuals", static_cast<double>(measured.numel()), 1410, 0);
  close("markers", static_cast<double>(used.numel()), 10768, 0);

  const auto matrix = centred_relatedness(dosages.index_select(1, used));
  for (int i = 0; i < 3; ++i)
    for (int j = i; j < 3; ++j)
      close("relatedness_" + std::to_string(i) + std::to_string(j), matrix[i][j].item<double>(), known_matrix[i][j]);
  const auto stored = read_relatedness(file + ":/kinship").dense();
  accept.at_most("dependent_mouse_relatedness_against_the_stored_one", (matrix - stored).abs().max().item<double>(),
                 0.003);

  const auto stored_here = stored.index_select(0, measured).index_select(1, measured);
  const MixedModel model(stored_here);
  const auto y = outcome.index_select(0, measured);
  const auto null = model.null(y);
  // Of the stored matrix, which no rounding of dosages has touched.
  close("variance_explained", null.variance_explained, 0.608801, 1e-5);
  close("variance_explained_standard_error", null.standard_error, 0.032774, 1e-4);
  std::vector<int64_t> columns;
  for (const auto& row : known)
    for (size_t i = 0; i < genotypes.markers.size(); ++i)
      if (genotypes.markers[i].name == row.marker) columns.push_back(static_cast<int64_t>(i));
  const auto chosen = torch::tensor(columns);
  const auto found = model.associate(y, model.rotated(dosages.index_select(0, measured).index_select(1, chosen)));
  for (int64_t i = 0; i < chosen.numel(); ++i) {
    const auto& row = known[i];
    const auto name = [&](const char* what) { return std::string(row.marker) + "_" + what; };
    const auto at = [&](const Tensor& values) { return values[i].item<double>(); };
    const auto frequency = markers.frequency[columns[i]].item<double>();
    accept.at_most("dependent_mouse_" + name("frequency_error"), std::abs(frequency - row.frequency), 0.001);
    close(name("beta"), at(found.effect), row.beta);
    close(name("standard_error"), at(found.standard_error), row.standard_error);
    close(name("lambda"), at(found.lambda_reml), row.lambda);
    close(name("p_wald"), at(found.wald), row.p);
  }
  // The strongest signal is on chromosome 17.
  const auto all = model.rotated(dosages.index_select(0, measured).index_select(1, used));
  const auto scan = model.associate(y, all, MixedModel::Strength::of_the_null);
  const auto strongest = used[scan.wald.argmin().item<int64_t>()].item<int64_t>();
  std::printf("strongest marker: %s on chromosome %s, p %.3g\n", genotypes.markers[strongest].name.c_str(),
              genotypes.markers[strongest].chromosome.c_str(), scan.wald.min().item<double>());
  accept.at_least("dependent_mouse_strongest_is_on_17", genotypes.markers[strongest].chromosome == "17", 1);
  return accept.exit_code();
}
