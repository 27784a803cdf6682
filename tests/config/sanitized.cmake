# SPDX-License-Identifier: Apache-2.0
# What asan.cmake and tsan.cmake share. MPI is not clean under sanitizers, so these builds go without
# it. Little optimisation, line numbers alone, several files of a library at once: most of a
# sanitizer's minutes are the compiler's.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" CACHE STRING "")
set(CMAKE_UNITY_BUILD ON CACHE BOOL "")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16 CACHE STRING "")
set(VOCABPIPE_ENABLE_MPI OFF CACHE BOOL "")
set(VOCABPIPE_BUILD_BENCHMARKS OFF CACHE BOOL "")
set(VOCABPIPE_BUILD_TOOLS OFF CACHE BOOL "")
set(VOCABPIPE_BUILD_EXAMPLES OFF CACHE BOOL "")
set(VOCABPIPE_INSTALL OFF CACHE BOOL "")
