# SPDX-License-Identifier: Apache-2.0
# The headers of CUTLASS (https://github.com/NVIDIA/cutlass), which has no library that is needed here.
# Looked for in CUTLASS_ROOT, a clone or a folder into which the wheel nvidia-cutlass was unpacked, and
# where pip puts that wheel. CUTLASS_INCLUDE_DIR says it outright.
include("${CMAKE_CURRENT_LIST_DIR}/VocabpipeWheels.cmake")
set(_cutlass_folders)
if(NOT CUTLASS_INCLUDE_DIR)
  vocabpipe_wheel_folders(_cutlass_folders CUTLASS)
endif()
find_path(CUTLASS_INCLUDE_DIR cutlass/cutlass.h
          HINTS ${CUTLASS_ROOT} ENV CUTLASS_ROOT ${_cutlass_folders}
          PATH_SUFFIXES include cutlass_library/source/include)

vocabpipe_header_version(CUTLASS_VERSION "${CUTLASS_INCLUDE_DIR}/cutlass/version.h" CUTLASS MAJOR MINOR PATCH)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUTLASS REQUIRED_VARS CUTLASS_INCLUDE_DIR VERSION_VAR CUTLASS_VERSION)
