# SPDX-License-Identifier: Apache-2.0
# What a change is built and tested with: cmake -G Ninja -C tests/config/dev.cmake -B build
# FORCE, here and beside: a folder that was configured before has these options too.
set(VOCABPIPE_BUILD_TESTS ON CACHE BOOL "" FORCE)
set(VOCABPIPE_BUILD_BENCHMARKS ON CACHE BOOL "" FORCE)
set(VOCABPIPE_WERROR ON CACHE BOOL "" FORCE)
