#include "diffeo/data/toy.h"

#include <cmath>
#include <iostream>

#include "diffeo/apps/command.h"
#include "diffeo/apps/output.h"
#include "diffeo/apps/text.h"
#include "diffeo/data/table.h"

namespace diffeo::apps {

int toy(const Arguments& arguments) {
  std::string name, file;
  int64_t rows = 20000;
  std::vector<double> split{0.8, 0.1, 0.1};
  Command command("toy", "make a table of points in the plane, for first steps", "NAME FILE.h5 [-n ROWS]",
                  {"diffeo toy moons moons.h5 -n 100000", "diffeo toy checkerboard board.h5 --seed 7 --dtype float64"});
  command.argument("name", name, c10::Join(", ", toy_names()));
  command.argument("file", file, "HDF5 file to write: /train/x, /valid/x and /test/x");
  command.option("rows,n", rows, "rows of all three together");
  command.option("split", split, "fractions of rows for train, valid and test");
  if (!command.parse(arguments)) return fine;
  check(rows > 0, "-n: expected 1 or more, got ", rows);
  check(split.size() == 3 && *std::min_element(split.begin(), split.end()) >= 0 &&
            std::abs(split[0] + split[1] + split[2] - 1) < 1e-6,
        "--split: expected three fractions that add up to 1");
  check_writable(file);
  const auto dtype = command.dtype(torch::kFloat32);
  const auto points = diffeo::toy(name, rows, command.common().seed, dtype);

  TableWriter writer(file);
  int64_t begin = 0;
  double share = 0;
  const char* const objects[] = {"/train/x", "/valid/x", "/test/x"};
  for (size_t i = 0; i < 3; ++i) {
    share += split[i];
    const auto end = i == 2 ? rows : std::llround(share * static_cast<double>(rows));
    writer.begin(objects[i],
                 {{.name = "x", .unit = "", .discrete = false}, {.name = "y", .unit = "", .discrete = false}}, dtype);
    writer.append(points.slice(0, begin, end));
    begin = end;
  }
  writer.attribute("/", "source", c10::str("diffeo toy ", name, ", seed ", command.common().seed));
  writer.finish();
  std::cout << file << ": " << grouped(rows) << " rows of " << name << '\n';
  return fine;
}

}  // namespace diffeo::apps
