#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace diffeo {

/// body(first, last) for parts of [begin, end) that cover it, on the threads of LibTorch's pool (at::set_num_threads):
/// no part but the last has fewer than `grain` steps, and a call from within another one's body is a single part. An
/// exception of a part is thrown again here, once all have ended. Threads have modes of their own: a body that calls
/// tensor operations sets what it needs, such as at::NoGradGuard.
///
/// at::parallel_for is a template that runs on one thread, without a word, in sources compiled without OpenMP; this one
/// function is compiled with it, so that no other source needs the option.
void parallel_for(int64_t begin, int64_t end, int64_t grain, c10::function_ref<void(int64_t first, int64_t last)> body);

}  // namespace diffeo
