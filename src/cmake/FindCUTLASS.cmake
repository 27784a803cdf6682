# SPDX-License-Identifier: Apache-2.0
# The headers of CUTLASS (https://github.com/NVIDIA/cutlass), which has no library that is needed here.
# Looked for in CUTLASS_ROOT, a clone or a folder into which the wheel nvidia-cutlass was unpacked, and
# where pip puts that wheel. CUTLASS_INCLUDE_DIR says it outright.
set(_cutlass_folders)
if(NOT CUTLASS_INCLUDE_DIR)
  find_program(CUTLASS_PYTHON NAMES python3 python DOC "Python whose packages are searched for CUTLASS")
  mark_as_advanced(CUTLASS_PYTHON)
  if(CUTLASS_PYTHON)
    execute_process(
      COMMAND "${CUTLASS_PYTHON}" -c
              "import site, sysconfig; print(';'.join([sysconfig.get_paths()['purelib'], sysconfig.get_paths()['platlib'], site.getusersitepackages()]))"
      OUTPUT_VARIABLE _cutlass_folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET TIMEOUT 30)
  endif()
endif()
find_path(CUTLASS_INCLUDE_DIR cutlass/cutlass.h
          HINTS ${CUTLASS_ROOT} ENV CUTLASS_ROOT ${_cutlass_folders}
          PATH_SUFFIXES include cutlass_library/source/include)

set(_cutlass_parts)
if(EXISTS "${CUTLASS_INCLUDE_DIR}/cutlass/version.h")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS "${CUTLASS_INCLUDE_DIR}/cutlass/version.h" line REGEX "^#define CUTLASS_${part} +[0-9]+")
    string(REGEX REPLACE "^#define CUTLASS_${part} +([0-9]+).*" "\\1" number "${line}")
    list(APPEND _cutlass_parts "${number}")
  endforeach()
endif()
list(JOIN _cutlass_parts "." CUTLASS_VERSION)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUTLASS REQUIRED_VARS CUTLASS_INCLUDE_DIR VERSION_VAR CUTLASS_VERSION)
