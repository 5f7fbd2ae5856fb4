#include "diffeo/apps/inspect.h"

#include "diffeo/apps/command.h"
#include "diffeo/data/model_file.h"

namespace diffeo::apps {

int inspect(const Arguments& arguments) {
  std::string what, object;
  bool layers = false, recipes = false, objectives = false, targets = false, markdown = false, all = false;
  const std::string usage = "FILE.h5 | --layers [NAME] | --recipes | --objectives | --targets";
  Command command("inspect", "describe a data file, a model file, or what this program knows", usage,
                  {"diffeo inspect moons.h5                     # tables: columns, ranges, missing values, histograms",
                   "diffeo inspect moons.h5 --object /test/x    # one of them",
                   "diffeo inspect model.h5                     # layers, parameters, columns and training history",
                   "diffeo inspect --layers                     # every layer, map and base distribution",
                   "diffeo inspect --layers coupling            # the options of one, with examples",
                   "diffeo inspect --recipes                    # the flows that train --flow knows",
                   "diffeo inspect --objectives                 # what train --objective can minimise",
                   "diffeo inspect --targets                    # what sample-target can sample"});
  command.argument("file", what, "data or model file; after --layers the name of a layer", false);
  command.option("object", object, "describe only this object of a data file", "PATH");
  command.option("all", all, "read every row of a huge table, show every column of a wide one");
  command.option("layers", layers, "list what flows can be built from");
  command.option("recipes", recipes, "list the named flows");
  command.option("objectives", objectives, "list what training can minimise");
  command.option("targets", targets, "list the densities that sample-target knows");
  command.option("markdown", markdown, "with --layers: at length, as a page of documentation");
  if (!command.parse(arguments)) return fine;
  if (layers && markdown)
    document_registered();
  else if (layers)
    describe_registered(what);
  else if (recipes)
    describe_recipes();
  else if (objectives)
    describe_objectives();
  else if (targets)
    describe_targets();
  else if (what.empty())
    throw Error("file is missing; usage: diffeo inspect " + usage);
  else if (is_model_file(what))
    describe_model(what);
  else
    describe_data(what, object, all);
  return fine;
}

}  // namespace diffeo::apps
