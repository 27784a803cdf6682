# SPDX-License-Identifier: Apache-2.0
# The CUDA toolkit and NCCL, where -DVOCABPIPE_ENABLE_CUDA=ON asks for them. Nothing is switched off
# silently: what is missing is named.
set(VOCABPIPE_CUDA_ARCHITECTURES "80-real;90-real;100-real;100-virtual" CACHE STRING
    "GPUs to compile for: A100; H100, H200; B200; and PTX for later ones")
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "${VOCABPIPE_CUDA_ARCHITECTURES}")
endif()
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # CMake's default, the static one, would be a second runtime
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "vocabpipe: VOCABPIPE_ENABLE_CUDA needs nvcc, which was not found. Install the CUDA "
                      "toolkit (12.3 or newer), set CUDACXX or -DCMAKE_CUDA_COMPILER=/path/to/nvcc, or "
                      "configure with -DVOCABPIPE_ENABLE_CUDA=OFF")
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25's table of nvcc stops at C++17
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit 12.3 REQUIRED)
find_package(NCCL 2.26 QUIET)
if(NOT NCCL_FOUND)
  message(FATAL_ERROR "vocabpipe: VOCABPIPE_ENABLE_CUDA needs NCCL 2.26 or newer (nccl.h, libnccl), which was "
                      "not found. Install it (NVIDIA's repository: apt-get install libnccl-dev), or give "
                      "-DNCCL_INCLUDE_DIR=... -DNCCL_LIBRARY=...")
endif()
include(VocabpipeCudnn)
include(VocabpipeCutlass)
