# SPDX-License-Identifier: Apache-2.0
# VOCABPIPE_HAS_CUTLASS from VOCABPIPE_ENABLE_CUTLASS: AUTO uses CUTLASS where it is found, ON insists.
set(VOCABPIPE_HAS_CUTLASS OFF)
if(NOT VOCABPIPE_ENABLE_CUTLASS)
  message(STATUS "Products of experts on GPUs: cuBLASLt, one by one (VOCABPIPE_ENABLE_CUTLASS=OFF)")
  return()
endif()
# Its interface changes: this is the one that has been compiled.
set(least 4.2)
find_package(CUTLASS ${least} QUIET)
if(CUTLASS_FOUND)
  set(VOCABPIPE_HAS_CUTLASS ON)
  message(STATUS "Products of experts on GPUs: CUTLASS ${CUTLASS_VERSION} (${CUTLASS_INCLUDE_DIR}) for compute "
                 "capability 9.0 where it can, cuBLASLt elsewhere")
  return()
endif()
if(CUTLASS_INCLUDE_DIR)
  set(missing "CUTLASS ${least} (there is ${CUTLASS_VERSION})")
else()
  set(missing "CUTLASS_INCLUDE_DIR")
endif()
if(VOCABPIPE_ENABLE_CUTLASS STREQUAL "AUTO")
  message(STATUS "Products of experts on GPUs: cuBLASLt, one by one; for one launch, not found: ${missing}")
else()
  message(FATAL_ERROR "vocabpipe: VOCABPIPE_ENABLE_CUTLASS needs the headers of CUTLASS ${least} or newer. Not found: "
                      "${missing}. Install the wheel nvidia-cutlass, give -DCUTLASS_ROOT=<folder>, or configure with "
                      "-DVOCABPIPE_ENABLE_CUTLASS=OFF")
endif()
