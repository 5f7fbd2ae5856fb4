// How specs are said on a command line.
#include <gtest/gtest.h>

#include "diffeo/layers/base/options.h"

namespace diffeo::testing {
namespace {

TEST(SpecFromText, ReadsNamesKeysAndValues) {
  EXPECT_EQ(spec_from_text("double-well"), Json({{"type", "double_well"}}));
  const Json want = {{"type", "a"},  {"step_size", 0.5}, {"list", {1, 2}},
                     {"word", "kl"}, {"text", "x,y"},    {"on", true}};
  EXPECT_EQ(spec_from_text(R"(a:step-size=0.5,list=[1,2],word=kl,text="x,y",on=true)"), want);
}

TEST(SpecFromText, NamesWhatItCannotRead) {
  for (const auto* text : {"", ":a=1", "a:", "a:b", "a:=1", "a:b=1,,c=2"}) {
    SCOPED_TRACE(text);
    EXPECT_THROW(spec_from_text(text), SpecError);
  }
}

}  // namespace
}  // namespace diffeo::testing
