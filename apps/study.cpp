#include "diffeo/apps/study.h"

#include <cmath>
#include <set>

#include "diffeo/apps/command.h"
#include "diffeo/apps/tables.h"

namespace diffeo::apps {
namespace {

constexpr size_t most_treatments = 20;

/// The rows that an option names, of all splits.
Table read_part(const StudyOptions& options, const std::string& option, const std::string& text, torch::Dtype dtype) {
  check(!text.empty(), "option --", option, " is missing; say for example --", option, " /train/",
        option == "covariates" ? "x" : option);
  check(!options.splits.empty(), "--splits: expected at least one name");
  TableSource source{options.file, {}, {}};
  if (text.starts_with("/")) {
    const auto colon = text.find(':');
    source.object = text.substr(0, colon);
    if (colon != std::string::npos) source.columns = split(text.substr(colon + 1), ',');
  } else {
    source.object = object_in(options.file, options.table, {"/train/x", "/x"});
    source.columns = split(text, ',');
  }
  const std::string first = "/train/";
  if (!source.object.starts_with(first)) return within("--" + option, [&] { return read_table(source, dtype); });
  const auto rest = source.object.substr(first.size());
  Table all;
  std::vector<Tensor> parts;
  for (const auto& name : options.splits) {
    source.object = "/" + name + "/" + rest;
    all = within("--" + option, [&] { return read_table(source, dtype); });
    parts.push_back(all.values);
  }
  all.values = torch::cat(parts);
  return all;
}

std::string where(const StudyOptions& options, const std::string& text) { return options.file + ":" + text; }

/// The values of the treatment, in order, and the place of each row's.
void number_treatments(const StudyOptions& options, const Tensor& values, const std::vector<int64_t>& expected,
                       NamedStudy& named) {
  const auto place = where(options, options.treatment);
  const auto broken = values.ne(values.round()).nonzero();
  if (broken.numel() > 0) {
    const auto row = broken[0][0].item<int64_t>();
    throw Error(c10::str(place, ": row ", row, " holds ", values[row].item<double>(),
                         "; a treatment is a whole number, one for each thing that was done"));
  }
  const auto whole = values.to(torch::kInt64).contiguous();
  const std::set<int64_t> found(whole.data_ptr<int64_t>(), whole.data_ptr<int64_t>() + whole.numel());
  check(found.size() <= most_treatments, place, ": takes ", found.size(), " different values; a treatment has at most ",
        most_treatments);
  named.treatments = expected.empty() ? std::vector<int64_t>(found.begin(), found.end()) : expected;
  for (const auto one : named.treatments)
    check(found.contains(one), place, ": treatment ", one, " was never given; the rows have ",
          c10::Join(", ", std::vector<int64_t>(found.begin(), found.end())));
  check(named.treatments.size() > 1, place, ": every row has treatment ", named.treatments.front(),
        "; the other was never given, so that nothing can be compared");
  named.study.treatment = torch::full_like(whole, -1);
  for (size_t a = 0; a < named.treatments.size(); ++a)
    named.study.treatment.masked_fill_(whole.eq(named.treatments[a]), static_cast<int64_t>(a));
  for (const auto one : found)
    check(std::find(named.treatments.begin(), named.treatments.end(), one) != named.treatments.end(), place,
          ": some rows have treatment ", one, ", which is none of ", c10::Join(", ", named.treatments));
}

}  // namespace

NamedStudy read_study(const StudyOptions& options, torch::Dtype dtype, const std::vector<int64_t>& treatments) {
  const auto covariates = read_part(options, "covariates", options.covariates, dtype);
  const auto treatment = read_part(options, "treatment", options.treatment, torch::kFloat64);
  const auto outcome = read_part(options, "outcome", options.outcome, dtype);
  check(treatment.columns.size() == 1, where(options, options.treatment), ": has ", treatment.columns.size(),
        " columns; choose one, for example --treatment ", options.treatment, ":0");
  const auto rows = covariates.values.size(0);
  const auto same_length = [&](const Table& table, const std::string& text) {
    check(table.values.size(0) == rows, where(options, text), ": has ", table.values.size(0), " rows, but ",
          where(options, options.covariates), " has ", rows);
  };
  same_length(treatment, options.treatment);
  same_length(outcome, options.outcome);
  check(rows > 0, where(options, options.covariates), ": has no rows");
  NamedStudy named;
  named.covariate_columns = covariates.columns;
  named.outcome_columns = outcome.columns;
  named.treatment_name = treatment.columns[0].name;
  named.study.covariates = covariates.values;
  named.study.outcome = outcome.values;
  number_treatments(options, treatment.values.flatten(), treatments, named);
  check_study(named.study, static_cast<int64_t>(named.treatments.size()));
  return named;
}

}  // namespace diffeo::apps
