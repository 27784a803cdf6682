# SPDX-License-Identifier: Apache-2.0
# Races: cmake -G Ninja -C tests/config/tsan.cmake -B build-tsan; run what it builds with
# TSAN_OPTIONS=suppressions=$PWD/tests/config/tsan-suppressions.txt
include("${CMAKE_CURRENT_LIST_DIR}/sanitized.cmake")
set(VOCABPIPE_SANITIZE "thread" CACHE STRING "" FORCE)
