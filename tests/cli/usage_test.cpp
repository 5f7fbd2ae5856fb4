// Help, versions, mistakes in arguments: what the program says before it does any work.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace diffeo::testing {
namespace {

const std::vector<std::string> subcommands{"associate", "convert", "evaluate",      "fair", "inspect", "intervene",
                                           "plot",      "sample",  "sample-target", "toy",  "train"};

/// A mistake costs exit code 2, one line on stderr that begins with who complains, and nothing else.
void expect_refused(const Folder& folder, const std::string& arguments, const std::string& who,
                    const std::vector<std::string>& words) {
  SCOPED_TRACE("diffeo " + arguments);
  const auto before = folder.files();
  const auto outcome = folder.run(arguments);
  EXPECT_EQ(outcome.code, 2) << ::testing::PrintToString(outcome);
  EXPECT_EQ(lines(outcome.errors), 1u) << outcome.errors;
  EXPECT_TRUE(outcome.errors.starts_with(who + ": ")) << outcome.errors;
  for (const auto& word : words)
    EXPECT_NE(outcome.errors.find(word), std::string::npos) << "'" << word << "' is not in: " << outcome.errors;
  EXPECT_EQ(outcome.output, "");
  EXPECT_EQ(folder.files(), before) << "something was written";
}

TEST(Usage, HelpOfEverySubcommandHasExamplesAndTheCommonOptions) {
  const Folder folder;
  const auto all = folder.run("--help");
  EXPECT_EQ(all.code, 0);
  for (const auto& name : subcommands) {
    SCOPED_TRACE(name);
    EXPECT_NE(all.output.find("\n  " + name + " "), std::string::npos);
    // Of a subcommand with parts, the parts have the options.
    for (const std::string part :
         name == "fair" ? std::vector<std::string>{" train", " encode", " certify"} : std::vector<std::string>{""}) {
      const auto outcome = folder.run(name + part + " --help");
      EXPECT_EQ(outcome.code, 0);
      EXPECT_EQ(outcome.errors, "");
      for (const auto* word :
           {"usage: diffeo", "examples:\n  diffeo", "--config", "--device", "--threads", "--seed", "--dtype"})
        EXPECT_NE(outcome.output.find(word), std::string::npos) << part << ": " << word;
    }
  }
}

TEST(Usage, OptionsOfADescribedStructAppearWithHelpAndDefaults) {
  const auto text = Folder().run("train --help").output;
  for (const auto* word :
       {"--batch-size N", "rows in a step (default 512)", "--learning-rate X", "--memory-mb", "--bins", "--preprocess"})
    EXPECT_NE(text.find(word), std::string::npos) << word;
  EXPECT_EQ(text.find("--features"), std::string::npos) << "features come from the data";
}

TEST(Usage, VersionIsOneLine) {
  const auto outcome = Folder().run("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.output, "diffeo " DIFFEO_VERSION "\n");
}

TEST(Usage, MistakesInArgumentsAreRefusedInOneLine) {
  const Folder folder;
  expect_refused(folder, "trian data.h5", "diffeo", {"unknown subcommand 'trian'", "did you mean 'train'?"});
  expect_refused(folder, "train data.h5 --bach-size 3", "diffeo train",
                 {"unknown option '--bach-size'", "did you mean '--batch-size'?"});
  expect_refused(folder, "train data.h5 --flow nsf -o m.h5 --batch-size many", "diffeo train",
                 {"--batch-size", "expected an integer, got 'many'"});
  expect_refused(folder, "train data.h5 --flow nsf -o m.h5 --learning-rate", "diffeo train", {"--learning-rate"});
  expect_refused(folder, "train data.h5 --flow nsf -o m.h5 --seed -1", "diffeo train", {"--seed", "not negative"});
  expect_refused(folder, "train --flow nsf -o m.h5", "diffeo train",
                 {"data is missing", "usage: diffeo train DATA.h5"});
  expect_refused(folder, "train data.h5 --flow nsf", "diffeo train", {"--output is missing", "-o model.h5"});
  expect_refused(folder, "train data.h5 -o m.h5", "diffeo train", {"which flow?"});
  expect_refused(folder, "train data.h5 --flow nsf -o m.h5 --objective maximum-likelyhood", "diffeo train",
                 {"--objective", "did you mean 'maximum_likelihood'?"});
  expect_refused(folder, "train data.h5 --flow nsf -o m.h5 --objective maximum_likelihood:fast", "diffeo train",
                 {"--objective", "key=value", "'fast'"});
  expect_refused(folder, "inspect a.h5 --device gpu", "diffeo inspect", {"unknown value 'gpu'", "auto, cpu, cuda"});
  expect_refused(folder, "inspect a.h5 --dtype float16", "diffeo inspect",
                 {"unknown value 'float16'", "float32, float64"});
  expect_refused(folder, "inspect --threads 1 --threads 2", "diffeo inspect", {"--threads", "given twice"});
  expect_refused(folder, "inspect --layers couplin", "diffeo inspect", {"'couplin'", "did you mean 'coupling'?"});
  expect_refused(folder, "inspect a.h5 b.h5", "diffeo inspect", {"too many arguments", "usage:"});
  expect_refused(folder, "plot pie a.h5 -o a.png", "diffeo plot",
                 {"unknown value 'pie'", "corner, density, history, loglik"});
}

TEST(Usage, ConfigurationFilesGiveOptionsAndTheirMistakesAreNamed) {
  const Folder folder;
  folder.write("wrong-key.json", R"({"batch_sise": 3})");
  folder.write("wrong-type.json", R"({"batch_size": "many"})");
  folder.write("broken.json", R"({"batch_size": )");
  const std::string train = "train data.h5 --flow nsf -o m.h5 --config ";
  expect_refused(folder, train + "wrong-key.json", "diffeo train",
                 {"wrong-key.json: unknown key 'batch_sise'", "did you mean 'batch_size'?"});
  expect_refused(folder, train + "wrong-type.json", "diffeo train",
                 {"wrong-type.json: batch_size", "expected an integer, got \"many\""});
  expect_refused(folder, train + "broken.json", "diffeo train", {"broken.json", "no valid JSON"});
  expect_refused(folder, train + "absent.json", "diffeo train", {"absent.json", "No such file"});
  // A configuration file alone gives the arguments too, and the command line wins.
  folder.write("layers.json", R"({"layers": true, "file": "permutation"})");
  EXPECT_NE(folder.run("inspect --config layers.json").output.find("permutation (layer)"), std::string::npos);
  EXPECT_NE(folder.run("inspect coupling --config layers.json").output.find("coupling (layer)"), std::string::npos);
}

TEST(Usage, EveryRegisteredLayerAndRecipeIsListed) {
  const Folder folder;
  const auto layers = folder.run("inspect --layers");
  EXPECT_EQ(layers.code, 0);
  for (const auto* name : {"coupling", "rq_spline", "normal"})
    EXPECT_NE(layers.output.find(std::string("\n  ") + name + " "), std::string::npos) << name;
  const auto one = folder.run("inspect --layers coupling");
  EXPECT_NE(one.output.find(R"("type":"coupling")"), std::string::npos);
  EXPECT_NE(folder.run("inspect --recipes").output.find("\n  nsf "), std::string::npos);
  EXPECT_NE(folder.run("inspect --layers --markdown").output.find("### coupling\n"), std::string::npos);
}

}  // namespace
}  // namespace diffeo::testing
