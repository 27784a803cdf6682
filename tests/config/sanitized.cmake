# SPDX-License-Identifier: Apache-2.0
# What asan.cmake and tsan.cmake share. MPI is not clean under sanitizers, so these builds go without
# it. Little optimisation, line numbers alone, several files of a library at once: most of a
# sanitizer's minutes are the compiler's.
set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1" CACHE STRING "" FORCE)
set(VOCABPIPE_BUILD_TESTS ON CACHE BOOL "" FORCE)
set(VOCABPIPE_GROUP_TESTS ON CACHE BOOL "" FORCE)
set(VOCABPIPE_WERROR OFF CACHE BOOL "" FORCE)  # g++ warns of more than is there when it adds checks
foreach(part ENABLE_MPI BUILD_BENCHMARKS BUILD_TOOLS BUILD_EXAMPLES INSTALL)
  set(VOCABPIPE_${part} OFF CACHE BOOL "" FORCE)
endforeach()
