# SPDX-License-Identifier: Apache-2.0
# Wrong memory, undefined behaviour: cmake -G Ninja -C tests/config/asan.cmake -B build-asan
include("${CMAKE_CURRENT_LIST_DIR}/sanitized.cmake")
set(VOCABPIPE_SANITIZE "address,undefined" CACHE STRING "" FORCE)
