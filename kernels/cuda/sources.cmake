# SPDX-License-Identifier: Apache-2.0
# Sources of the CUDA kernels, relative to the repository: compiled by nvcc where CUDA is enabled, and
# by the C++ compiler against the tests' stand-in toolkit everywhere.
set(VOCABPIPE_CUDA_KERNEL_SOURCES
  kernels/cuda/engine.cpp)
