#include "diffeo/apps/train_target.h"

#include <algorithm>
#include <iostream>

#include "diffeo/apps/tables.h"
#include "diffeo/apps/text.h"
#include "diffeo/flows/preprocess.h"
#include "diffeo/samplers/importance.h"
#include "diffeo/samplers/target.h"
#include "diffeo/samplers/weighted.h"
#include "diffeo/trainers/variational.h"

namespace diffeo::apps {
namespace {

constexpr int64_t batches_in_epoch = 100, draws_to_validate = 4096, draws_to_compare = 100000, draws_in_pass = 4096;

bool takes_target(const ObjectiveEntry& entry) {
  return std::any_of(entry.fields.begin(), entry.fields.end(),
                     [](const FieldHelp& field) { return field.name == "target"; });
}

/// Those objectives that take a target, for errors.
std::string with_targets() {
  std::vector<std::string> names;
  for (const auto* entry : all_objectives())
    if (takes_target(*entry)) names.push_back(entry->name);
  return c10::Join(", ", names);
}

TargetPtr target_in(const Json& spec) {
  return within("--target", [&] { return build_target(spec.at("target")); });
}

}  // namespace

Json objective_spec(const std::string& objective, const std::string& target) {
  auto spec = within("--objective", [&] { return spec_from_text(objective); });
  const auto& entry = within("--objective", [&]() -> const ObjectiveEntry& { return find_objective(spec); });
  if (target.empty()) {
    check(!entry.draws_own_points || !spec.value("target", Json()).is_null(), "--objective ", entry.name,
          ": needs a target; say for example --target double_well:features=2 (diffeo inspect --targets)");
    return spec;
  }
  check(takes_target(entry), "--target: the objective ", entry.name, " takes no target; those that do are ",
        with_targets());
  check(!spec.contains("target"), "--target and the target inside of --objective exclude each other");
  spec["target"] = within("--target", [&] { return spec_from_text(target); });
  return spec;
}

void check_no_data_options(const Command& command, const std::string& objective, const std::string& file) {
  check(file.empty(), "the objective ", objective, " draws its own points and reads no data; leave out ", file);
  const auto refuse = [&](const std::vector<FieldHelp>& fields) {
    for (const auto& field : fields)
      check(!command.given(field.name), "--", field.name, " is about data; the objective ", objective,
            " draws its own points");
  };
  refuse(describe<DataOptions>());
  refuse(describe<PreprocessOptions>());
}

Splits own_points(const Json& spec, int64_t batch_size) {
  const auto target = target_in(spec);
  Splits splits;
  splits.train = no_data(batches_in_epoch * batch_size);
  splits.valid = no_data(draws_to_validate);
  splits.columns = columns_for(target->space().size());
  return splits;
}

Json compare_with_target(Flow& flow, const Json& spec) {
  const auto target = target_in(spec);
  follow(*target, flow);
  std::vector<Tensor> log_weights;
  for (int64_t left = draws_to_compare; left > 0; left -= draws_in_pass)  // none of the points is kept
    log_weights.push_back(
        draw_weighted(flow, *target, std::min(left, draws_in_pass)).log_weight.to(torch::kCPU, torch::kFloat64));
  const auto all = torch::cat(log_weights);
  const double size = effective_sample_size(all);
  const auto log_z = log_mean_weight(all);
  std::cout << "target    " << target->name() << ": effective sample size " << number(100 * size, 3) << " %, log Z "
            << number(log_z.value, 6) << " +- " << number(log_z.error, 2) << ", E_q[log q - log p] "
            << number(-all.mean().item<double>(), 6) << " nats (" << grouped(draws_to_compare) << " draws)\n";
  return {{"effective_sample_size", size},
          {"log_z", log_z.value},
          {"standard_error", log_z.error},
          {"draws", draws_to_compare}};
}

}  // namespace diffeo::apps
