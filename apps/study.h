#pragma once

#include "diffeo/data/table.h"
#include "diffeo/trainers/interventional/study.h"

namespace diffeo::apps {

/// Where the rows of a study lie. Each of covariates, treatment and outcome is an object of the file, with columns
/// after a colon where not all are meant (`/train/outcome:0`), or columns of `table`.
struct StudyOptions {
  std::string file, table, covariates, treatment, outcome;
  std::vector<std::string> splits{"train"};
  static constexpr auto fields() {
    using O = StudyOptions;
    return std::tuple{
        required("file", &O::file, "HDF5 file"),
        optional("table", &O::table, "object that holds columns named without one; empty: /train/x, /x or the only"),
        optional("covariates", &O::covariates,
                 "object, or columns of the table: all that decides both treatment and outcome"),
        optional("treatment", &O::treatment, "object or column of whole numbers: what was done"),
        optional("outcome", &O::outcome,
                 "object or columns: what came of it; /train/outcome:0 is column 0 of an object"),
        optional("splits", &O::splits, "groups to read, one after the other, for objects in /train, e.g. train,valid")};
  }
};

/// A study as read, with what its columns are called.
struct NamedStudy {
  Study study;
  std::vector<int64_t> treatments;  ///< the values of the treatment, which study.treatment numbers from 0
  std::vector<Column> covariate_columns, outcome_columns;
  std::string treatment_name;
};

/// Reads a study in `dtype`. `treatments` are the values that the treatment may take; empty: those it takes. Throws
/// Error that names file, object, row and column: missing values, a treatment that is no whole number, is always the
/// same or takes many values, one of `treatments` never given, objects of different lengths.
NamedStudy read_study(const StudyOptions& options, torch::Dtype dtype, const std::vector<int64_t>& treatments = {});

}  // namespace diffeo::apps
