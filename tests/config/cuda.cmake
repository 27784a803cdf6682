# SPDX-License-Identifier: Apache-2.0
# Everything for GPUs compiles and links, fast: cmake -G Ninja -C tests/config/cuda.cmake -B build-cuda
# Measurements want a plain release build (docs/gpus.md).
set(VOCABPIPE_ENABLE_CUDA ON CACHE BOOL "")
set(VOCABPIPE_CUDA_ARCHITECTURES "90-real" CACHE STRING "")
set(VOCABPIPE_WERROR ON CACHE BOOL "")
set(CMAKE_CXX_FLAGS_RELEASE "-O1" CACHE STRING "")
set(CMAKE_UNITY_BUILD ON CACHE BOOL "")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16 CACHE STRING "")
