#include "diffeo/samplers/target.h"

namespace diffeo {

TargetPtr build_target(const Json& spec) { return find_entry(all_targets(), spec, "target").build(spec); }

}  // namespace diffeo
