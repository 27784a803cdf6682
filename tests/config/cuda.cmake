# SPDX-License-Identifier: Apache-2.0
# Everything for GPUs compiles and links, fast: cmake -G Ninja -C tests/config/cuda.cmake -B build-cuda
# Measurements want a plain release build (docs/gpus.md).
include("${CMAKE_CURRENT_LIST_DIR}/dev.cmake")
set(VOCABPIPE_ENABLE_CUDA ON CACHE BOOL "" FORCE)
set(VOCABPIPE_CUDA_ARCHITECTURES "90-real" CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_RELEASE "-O1" CACHE STRING "" FORCE)
set(VOCABPIPE_ENABLE_CUTLASS AUTO CACHE STRING "" FORCE)
