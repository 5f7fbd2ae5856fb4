#include "diffeo/apps/intervene.h"

#include "diffeo/apps/command.h"

namespace diffeo::apps {
namespace {

struct Action {
  const char* name;
  int (*run)(const Arguments&);
};
constexpr Action actions[] = {{"train", intervene_train},
                              {"density", intervene_density},
                              {"sample", intervene_sample},
                              {"effects", intervene_effects}};

}  // namespace

int intervene(const Arguments& arguments) {
  std::vector<std::string> known;
  for (const auto& action : actions) {
    known.push_back(action.name);
    if (!arguments.empty() && arguments[0] == action.name) return action.run({arguments.begin() + 1, arguments.end()});
  }
  if (!arguments.empty() && !arguments[0].starts_with("-"))
    throw Error(c10::str("unknown action '", arguments[0], "'", suggestion(arguments[0], known), "; known are ",
                         c10::Join(", ", known)));
  std::string action;
  Command command(
      "intervene", "densities of what would come of a treatment, from observational data",
      "train|density|sample|effects ... (each has --help)",
      {"diffeo intervene train ihdp.h5 --covariates /train/x --treatment /train/treatment --outcome /train/outcome:0 "
       "-o model.h5",
       "diffeo intervene density model.h5 --do 0,1 --grid -5:15:400 --plot densities.png -o densities.h5",
       "diffeo intervene sample model.h5 --do 1 -n 10000 -o treated.h5",
       "diffeo intervene effects model.h5 ihdp.h5                  # with standard errors from the rows"});
  command.argument("action", action, "train, density, sample or effects");
  if (!command.parse(arguments)) return fine;
  throw Error("which action? say train, density, sample or effects");
}

StoredIntervention read_intervention(const std::string& path) {
  StoredIntervention stored;
  stored.file = read_model(path);
  stored.model = interventional_from(stored.file, path);
  check(stored.file.metadata.value("finished", true), path,
        ": training has not finished; diffeo intervene train --resume goes on with it");
  return stored;
}

std::vector<int64_t> places_of(const InterventionalModel& model, const std::vector<int64_t>& treatments) {
  std::vector<int64_t> places;
  for (const auto one : treatments.empty() ? model.options().treatments : treatments)
    within("--do", [&] { return void(places.push_back(model.place_of(one))); });
  return places;
}

int64_t outcome_column(const ModelFile& file, const std::string& name) {
  if (name.empty()) return 0;
  std::vector<std::string> known;
  for (size_t i = 0; i < file.columns.size(); ++i) {
    if (file.columns[i].name == name) return static_cast<int64_t>(i);
    known.push_back(file.columns[i].name);
  }
  throw Error(c10::str("--column: there is no outcome '", name, "'", suggestion(name, known), "; known are ",
                       c10::Join(", ", known)));
}

}  // namespace diffeo::apps
