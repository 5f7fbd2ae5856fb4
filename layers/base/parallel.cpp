#include "diffeo/layers/base/parallel.h"

#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "compile this source with OpenMP: LibTorch's threads are left out without it"
#endif

namespace diffeo {

void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body) {
  at::parallel_for(begin, end, grain, body);
}

}  // namespace diffeo
