// The program `diffeo`: finds the subcommand, and turns whatever goes wrong into one line and an exit code.
#include <c10/util/Exception.h>

#include <cstdlib>
#include <iostream>
#include <new>

#include "diffeo/apps/signals.h"
#include "diffeo/apps/subcommands.h"
#include "diffeo/data/damaged_files.h"
#include "diffeo/layers/base/memory.h"
#include "diffeo/layers/base/options.h"

namespace diffeo::apps {
namespace {

struct Subcommand {
  const char *name, *summary;
  int (*run)(const Arguments&);
};

constexpr Subcommand subcommands[] = {
    {"train", "fit a flow to a table", train},
    {"evaluate", "log-likelihood of each row of a table", evaluate},
    {"sample", "draw new rows from a model", sample},
    {"sample-target", "draw weighted samples of a density known up to a constant", sample_target},
    {"associate", "association of genetic markers with a phenotype", associate},
    {"intervene", "densities of what would come of a treatment, from observational data", intervene},
    {"toy", "make a table of points in the plane, for first steps", toy},
    {"convert", "bring tables from CSV or NumPy to HDF5 and back", convert},
    {"inspect", "describe a data file, a model file, or what this program knows", inspect},
    {"plot", "draw data, samples, densities and training curves", plot},
    {"fair", "representations that hide a group, with a certificate", fair},
};

void print_help() {
  std::cout << "diffeo " DIFFEO_VERSION
               ": density modelling with normalizing flows\n\n"
               "usage: diffeo SUBCOMMAND [arguments]\n\n";
  for (const auto& one : subcommands)
    std::cout << "  " << one.name << std::string(15 - std::string(one.name).size(), ' ') << one.summary << '\n';
  std::cout << "\nexamples:\n"
               "  diffeo toy moons -n 20000 moons.h5                        # a table to try things on\n"
               "  diffeo train moons.h5 --flow nsf --epochs 20 -o model.h5  # fit a spline flow to it\n"
               "  diffeo evaluate model.h5 moons.h5                         # its log-likelihood on the test rows\n"
               "  diffeo sample model.h5 -n 100000 -o samples.h5            # new points from it\n"
               "  diffeo plot corner moons.h5 samples.h5 -o corner.png      # a picture of both\n\n"
               "diffeo SUBCOMMAND --help tells more, with examples. diffeo --version prints the version.\n"
               "Exit codes: 0 fine, 1 failed, 2 bad input or usage, 130 interrupted.\n";
}

/// Messages of libraries may have several lines; the user gets one.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c != '\n' && c != '\r')
      line += c;
    else if (!line.empty() && line.back() != ' ')
      line += ' ';
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

const Subcommand& find(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& one : subcommands) {
    if (one.name == name) return one;
    known.push_back(one.name);
  }
  throw Error(
      c10::str("unknown subcommand '", name, "'", suggestion(name, known), "; known are ", c10::Join(", ", known)));
}

int run(const Arguments& arguments, std::string& who) {
  if (arguments.empty()) {
    print_help();
    return bad_input;
  }
  if (arguments[0] == "--help" || arguments[0] == "-h" || arguments[0] == "help") {
    print_help();
    return fine;
  }
  if (arguments[0] == "--version") {
    std::cout << "diffeo " DIFFEO_VERSION "\n";
    return fine;
  }
  const auto& subcommand = find(arguments[0]);
  who = std::string("diffeo ") + subcommand.name;
  watch_signals();
  return subcommand.run({arguments.begin() + 1, arguments.end()});
}

int guarded(const Arguments& arguments) {
  std::string who = "diffeo";
  const auto complain = [&](const std::string& message, int code) {
    std::cout.flush();
    std::cerr << who << ": " << one_line(message) << std::endl;
    return code;
  };
  try {
    const int code = run(arguments, who);
    if (!std::cout.flush()) return complain("cannot write to standard output", failed);
    return code;
  } catch (const Interrupted& error) {
    return complain(error.what(), interrupted_by_signal);
  } catch (const Error& error) {
    return complain(error.what(), bad_input);
  } catch (const c10::Error& error) {
    return complain(error.what_without_backtrace(), failed);
  } catch (const std::bad_alloc&) {
    return complain("not enough memory", failed);
  } catch (const std::exception& error) {
    return complain(error.what(), failed);
  } catch (...) {
    return complain("failed for an unknown reason", failed);
  }
}

}  // namespace
}  // namespace diffeo::apps

int main(int argc, char** argv) {
  diffeo::end_cleanly_on_damaged_files();
  diffeo::keep_freed_memory();
  const int code = diffeo::apps::guarded({argv + 1, argv + argc});
  // Everything is written and closed by now. What libraries would still do at exit takes time, and HDF5 crashes in it
  // over a file that the disk had no room for.
  std::_Exit(code);
}
