# SPDX-License-Identifier: Apache-2.0
# oneDNN without its own package file, which asks for OpenCL although the CPU engine needs none.
# Looked for where CMake looks, DNNL_ROOT and CMAKE_PREFIX_PATH first; DNNL_DIR, which names the folder
# of that package file, says where as well. It must run on OpenMP: one that has TBB or SYCL, as PyPI's
# newest, does not ask OpenMP how many threads to start, and our products are one thread each.
if(DNNL_DIR)
  set(_dnnl_folders "${DNNL_DIR}/../../.." "${DNNL_DIR}/../../../..")
endif()
find_library(DNNL_LIBRARY dnnl HINTS ${_dnnl_folders} PATH_SUFFIXES lib)
# The header of that library, not of another version.
get_filename_component(_dnnl_folder "${DNNL_LIBRARY}" DIRECTORY)
find_path(DNNL_INCLUDE_DIR dnnl.hpp HINTS "${_dnnl_folder}/../include" ${_dnnl_folders} PATH_SUFFIXES include)

set(_dnnl_version "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
if(EXISTS "${_dnnl_version}")
  foreach(_dnnl_part MAJOR MINOR)
    file(STRINGS "${_dnnl_version}" _dnnl_line REGEX "^#define DNNL_VERSION_${_dnnl_part} ")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" DNNL_VERSION_${_dnnl_part} "${_dnnl_line}")
  endforeach()
  set(DNNL_VERSION "${DNNL_VERSION_MAJOR}.${DNNL_VERSION_MINOR}")
  file(STRINGS "${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_config.h" DNNL_RUNS_ON_OPENMP
       REGEX "^#define DNNL_CPU_RUNTIME DNNL_RUNTIME_(OMP|SEQ)$")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(DNNL REQUIRED_VARS DNNL_LIBRARY DNNL_INCLUDE_DIR DNNL_RUNS_ON_OPENMP
                                  VERSION_VAR DNNL_VERSION HANDLE_VERSION_RANGE)
if(DNNL_FOUND AND NOT TARGET DNNL::dnnl)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION "${DNNL_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${DNNL_INCLUDE_DIR}")
endif()
