#pragma once

#include "diffeo/layers/base/cpu_capability.h"

// A file NAME.simd.cpp is compiled once for each instruction set (cmake/simd.cmake) and defines, in a namespace named
// after it, `const Table<T>& kernels(T)` for float and double. DIFFEO_CPU_KERNELS(Table) declares these in the
// namespace where it stands, and cpu_kernels<T>(), which gives those of the instruction set in use.
#define DIFFEO_CPU_KERNELS_OF(capability, Table) \
  namespace capability {                         \
  const Table<float>& kernels(float);            \
  const Table<double>& kernels(double);          \
  }

#ifdef __x86_64__
#define DIFFEO_CPU_KERNELS(Table)                                               \
  DIFFEO_CPU_KERNELS_OF(baseline, Table)                                        \
  DIFFEO_CPU_KERNELS_OF(avx2, Table)                                            \
  DIFFEO_CPU_KERNELS_OF(avx512, Table)                                          \
  template <class T>                                                            \
  const Table<T>& cpu_kernels() {                                               \
    if (cpu_capability() == CpuCapability::avx512) return avx512::kernels(T()); \
    if (cpu_capability() == CpuCapability::avx2) return avx2::kernels(T());     \
    return baseline::kernels(T());                                              \
  }
#else
#define DIFFEO_CPU_KERNELS(Table)        \
  DIFFEO_CPU_KERNELS_OF(baseline, Table) \
  template <class T>                     \
  const Table<T>& cpu_kernels() {        \
    return baseline::kernels(T());       \
  }
#endif
