#include "diffeo/apps/inspect.h"

#include "diffeo/apps/command.h"

namespace diffeo::apps {

int inspect(const Arguments& arguments) {
  std::string what;
  bool layers = false;
  Command command("inspect", "describe a data file, a model file, or what this program knows",
                  "FILE.h5 | --layers [NAME] | --recipes",
                  {"diffeo inspect moons.h5             # tables with their columns, ranges and histograms",
                   "diffeo inspect model.h5             # layers, parameters, columns and training history",
                   "diffeo inspect --layers             # every layer, map and base distribution",
                   "diffeo inspect --layers coupling    # the options of one, with examples"});
  command.argument("file", what, "data or model file; after --layers the name of a layer", false);
  command.option("layers", layers, "list what flows can be built from");
  if (!command.parse(arguments)) return fine;
  if (layers) {
    describe_registered(what);
    return fine;
  }
  throw Error("file is missing; usage: diffeo inspect FILE.h5 | --layers [NAME] | --recipes");
}

}  // namespace diffeo::apps
