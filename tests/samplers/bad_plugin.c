/* A library for the tests that makes the mistake its option text names. */
#include <math.h>
#include <string.h>

#include "diffeo/samplers/target_plugin.h"

static const char* mistake = "";

static int log_density(const double* x, int64_t rows, int64_t features, double* log_density, double* gradient,
                       void* user) {
  (void)user;
  if (!strcmp(mistake, "fails")) return 42;
  for (int64_t row = 0; row < rows; ++row) {
    log_density[row] = !strcmp(mistake, "nan")                                ? NAN
                       : !strcmp(mistake, "outside") && x[row * features] < 0 ? -INFINITY
                                                                              : 0;
    for (int64_t i = 0; gradient && i < features; ++i)
      gradient[row * features + i] = !strcmp(mistake, "gradient") ? INFINITY : 0;
  }
  return 0;
}

int diffeo_target_open(const char* options, diffeo_target* target) {
  /* The text is the caller's: what is kept of it has to be one's own. */
  static char kept[32];
  strncpy(kept, options, sizeof kept - 1);
  mistake = kept;
  if (!strcmp(options, "refuse")) {
    target->error = "it does not feel like it";
    return 1;
  }
  target->version = DIFFEO_TARGET_PLUGIN_VERSION + !strcmp(options, "version");
  target->features = !strcmp(options, "features") ? 0 : 3;
  target->log_density = !strcmp(options, "function") ? NULL : log_density;
  return 0;
}
