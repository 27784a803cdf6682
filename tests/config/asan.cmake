# SPDX-License-Identifier: Apache-2.0
# Wrong memory: cmake -G Ninja -C tests/config/asan.cmake -B build-asan
# Undefined behaviour, too: -DVOCABPIPE_SANITIZE=address,undefined behind it, as tests/run.sh --full does.
include("${CMAKE_CURRENT_LIST_DIR}/sanitized.cmake")
set(VOCABPIPE_SANITIZE "address" CACHE STRING "" FORCE)
