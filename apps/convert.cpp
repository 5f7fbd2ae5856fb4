#include "diffeo/data/convert.h"

#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"

namespace diffeo::apps {

int convert(const Arguments& arguments) {
  std::string from, to;
  ConvertOptions options;
  Command command("convert", "bring tables from CSV or NumPy to HDF5 and back", "FROM TO",
                  {"diffeo convert events.csv events.h5                        # /x, with the names of the first line",
                   "diffeo convert points.npy points.h5 --object /train/x",
                   "diffeo convert samples.h5 samples.csv                      # the only table of the file",
                   "diffeo convert moons.h5 test.npy --object /test/x --columns x,y"});
  command.argument("from", from, "file to read: .csv, .tsv, .txt, .dat, .npy, .npz or .h5");
  command.argument("to", to, "file to write; one of the two is HDF5");
  command.options("of the conversion", options, {"dtype"});
  if (!command.parse(arguments)) return fine;
  if (!command.common().dtype.empty()) options.dtype = command.common().dtype;
  check_writable(to);
  std::cout << convert_table(from, to, options) << '\n';
  return fine;
}

}  // namespace diffeo::apps
