// The categorical variant on cells with known probabilities: the matching is the best of all permutations, and an
// adversary with the whole table attains the bound exactly.
#include <torch/types.h>

#include "accept.h"
#include "diffeo/trainers/fair/cells.h"
#include "diffeo/trainers/fair/certificate.h"

int main() {
  using namespace diffeo;
  diffeo::testing::Acceptance accept;
  constexpr int64_t cells = 24;
  torch::manual_seed(3);
  const auto random_law = [] {
    const auto p = torch::rand({cells}, torch::kFloat64).square();
    return p / p.sum();
  };
  const auto q = random_law(), p = random_law();
  const auto predicted = torch::randint(2, {cells}, torch::kLong);
  const CellMatching matching(q, p, predicted);
  const auto bound = certify_cells(matching.latent(1));
  const auto sorted = [](const Tensor& values) { return std::get<0>(values.sort()); };
  const double co_sorted = 0.5 * (sorted(p) - sorted(q)).abs().sum().item<double>();
  accept.at_most("fair_categorical_delta_is_that_of_sorting", std::abs(bound.delta() - co_sorted), 1e-12);
  double best_random = 1;
  for (int trial = 0; trial < 10000; ++trial)
    best_random =
        std::min(best_random, 0.5 * (p - q.index_select(0, torch::randperm(cells))).abs().sum().item<double>());
  accept.at_least("fair_categorical_best_of_10000_permutations_over_sorting", best_random - co_sorted, 0);
  // Every adversary is a table of guesses, one for each cell; the cells count one by one, so the best table has the
  // best guess in each. Trying both guesses for each cell is trying all 2^24 tables.
  for (double gamma : {0.0, 0.35, 1.0}) {
    const auto latent = matching.latent(gamma);
    double best_table = 0;
    for (int64_t cell = 0; cell < cells; ++cell)
      best_table += 0.5 * std::max(latent[0][cell].item<double>(), latent[1][cell].item<double>());
    const double stated = certify_cells(latent).accuracy;
    const double by_distance = 0.5 * (1 + 0.5 * (latent[0] - latent[1]).abs().sum().item<double>());
    const auto name = [&](const char* claim) { return claim + std::to_string(static_cast<int>(100 * gamma)); };
    accept.at_most(name("fair_categorical_best_table_is_the_bound_gamma"), std::abs(best_table - stated), 1e-12);
    accept.at_most(name("fair_categorical_bound_is_the_distance_gamma"), std::abs(by_distance - stated), 1e-12);
  }
  // Rows that are encoded follow that law: what the table reaches on them is the bound up to sampling.
  constexpr int64_t rows = 200000;
  const auto latent = matching.latent(0.35);
  const auto zeros = torch::zeros({rows}, torch::kLong);
  const auto guess = latent[1] > latent[0];
  const auto hits0 = guess.index_select(0, matching.encode(torch::multinomial(q, rows, true), zeros, 0.35)) == false;
  const auto hits1 = guess.index_select(0, matching.encode(torch::multinomial(p, rows, true), zeros + 1, 0.35));
  const double reached = 0.5 * (hits0.to(torch::kFloat64).mean() + hits1.to(torch::kFloat64).mean()).item<double>();
  accept.at_most("fair_categorical_table_on_encoded_rows", std::abs(reached - certify_cells(latent).accuracy), 0.004);
  return accept.exit_code();
}
