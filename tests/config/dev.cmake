# SPDX-License-Identifier: Apache-2.0
# What a change is built and tested with: cmake -G Ninja -C tests/config/dev.cmake -B build
set(VOCABPIPE_BUILD_TESTS ON CACHE BOOL "")
set(VOCABPIPE_BUILD_BENCHMARKS ON CACHE BOOL "")
set(VOCABPIPE_WERROR ON CACHE BOOL "")
