# CUDA sources as C++20 for compute capabilities 8.0 and 9.0, with PTX of the latter for what comes after.
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
if(CMAKE_VERSION VERSION_LESS 3.26)  # these CMakes do not know yet how nvcc spells C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)
