# SPDX-License-Identifier: Apache-2.0
# The build of tests/run.sh: every part that needs no GPU, whatever the folder was configured with before.
# What does not decide which tests there are stays: the compiler, oneDNN, warnings as errors.
foreach(part BUILD_TESTS BUILD_BENCHMARKS BUILD_EXAMPLES BUILD_TOOLS INSTALL ENABLE_MPI GROUP_TESTS)
  set(VOCABPIPE_${part} ON CACHE BOOL "" FORCE)
endforeach()
foreach(part BUILD_FUZZERS ENABLE_CUDA ENABLE_PARQUET)
  set(VOCABPIPE_${part} OFF CACHE BOOL "" FORCE)
endforeach()
set(VOCABPIPE_ENABLE_CUDNN AUTO CACHE STRING "" FORCE)
set(VOCABPIPE_ENABLE_CUTLASS OFF CACHE STRING "" FORCE)
set(VOCABPIPE_SANITIZE "" CACHE STRING "" FORCE)
set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG" CACHE STRING "" FORCE)
set(CMAKE_UNITY_BUILD ON CACHE BOOL "" FORCE)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16 CACHE STRING "" FORCE)
