/* A target for diffeo in one C file: points of the plane near a circle.
 *
 *   log p(x) = -(|x| - radius)^2 / (2 width^2)
 *
 * The option text is "radius width", for example "2 0.3". Build and use:
 *
 *   cc -shared -fPIC -O2 -I DIFFEO_INCLUDE ring.c -lm -o libring.so
 *   diffeo sample-target plugin:library=./libring.so,options="2 0.3" -n 10000 -o ring.h5
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "diffeo/samplers/target_plugin.h"

struct ring {
  double radius, width;
};

static int log_density(const double* x, int64_t rows, int64_t features, double* log_density, double* gradient,
                       void* user) {
  const struct ring* ring = user;
  if (features != 2) return 1;
  for (int64_t row = 0; row < rows; ++row) {
    const double *point = x + 2 * row, distance = hypot(point[0], point[1]);
    const double off = (distance - ring->radius) / ring->width;
    log_density[row] = -0.5 * off * off;
    if (!gradient) continue;
    /* In the middle every direction leads outwards; there the gradient is said to be 0. */
    const double pull = distance > 0 ? -off / (ring->width * distance) : 0;
    gradient[2 * row] = pull * point[0];
    gradient[2 * row + 1] = pull * point[1];
  }
  return 0;
}

int diffeo_target_open(const char* options, diffeo_target* target) {
  struct ring* ring = malloc(sizeof *ring);
  if (!ring) {
    target->error = "there is no memory left";
    return 1;
  }
  ring->radius = 2;
  ring->width = 0.3;
  if (options[0] != '\0' &&
      (sscanf(options, "%lf %lf", &ring->radius, &ring->width) != 2 || !(ring->radius > 0) || !(ring->width > 0))) {
    free(ring);
    target->error = "expected options \"radius width\", two numbers above 0";
    return 1;
  }
  target->version = DIFFEO_TARGET_PLUGIN_VERSION;
  target->features = 2;
  target->name = "ring";
  target->log_density = log_density;
  target->close = free;
  target->user = ring;
  return 0;
}
