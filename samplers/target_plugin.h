#ifndef DIFFEO_TARGET_PLUGIN_H
#define DIFFEO_TARGET_PLUGIN_H

/* A target density in a shared library of your own, for the target {"type": "plugin", "library": "./libmine.so"}.
 *
 * The library is plain C, includes only this header and exports one function, diffeo_target_open. diffeo calls the
 * functions of one target from one thread at a time. docs/guide/stochastic.md has a worked example,
 * examples/target_plugin/ its source. */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DIFFEO_TARGET_PLUGIN_VERSION 1

/* What a library says about its target. All of it stays valid until `close` is called. */
typedef struct diffeo_target {
  int32_t version;  /* DIFFEO_TARGET_PLUGIN_VERSION, as the library was compiled with it */
  int64_t features; /* D, at least 1: points are in R^D */
  const char* name; /* what to call the target */
  /* Log density in nats, up to a constant, of `rows` points x[row * features + feature]: log_density[row], which may be
   * -INFINITY where there is no density but never NaN. `gradient`, laid out as x, is to be filled too unless it is
   * NULL. Returns 0, or another number if it failed. */
  int (*log_density)(const double* x, int64_t rows, int64_t features, double* log_density, double* gradient,
                     void* user);
  void (*close)(void* user); /* called once at the end; may be NULL */
  void* user;                /* handed to the functions above; may be NULL */
  const char* error;         /* if opening failed: why, in a sentence; may be NULL */
} diffeo_target;

/* Fills `target`, which comes zeroed. `options` is the text of the target's option "options", "" where there is none.
 * Returns 0, or another number with `error` set if it cannot make the target. */
int diffeo_target_open(const char* options, diffeo_target* target);

typedef int (*diffeo_target_open_function)(const char* options, diffeo_target* target);

#ifdef __cplusplus
}
#endif

#endif
