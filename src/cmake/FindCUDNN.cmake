# SPDX-License-Identifier: Apache-2.0
# cuDNN 9 and the headers of cudnn-frontend (https://github.com/NVIDIA/cudnn-frontend), which has no
# library of its own. Looked for in CUDNN_ROOT, beside the CUDA toolkit, and where pip puts the wheels
# nvidia-cudnn-cu13 and nvidia-cudnn-frontend; CUDNN_ROOT may be a folder with include/ and lib/ or one
# into which wheels were unpacked. Wheels have libcudnn.so.9 without the link for developers.
# CUDNN_LIBRARY, CUDNN_INCLUDE_DIR and CUDNN_FRONTEND_INCLUDE_DIR say it outright.
include("${CMAKE_CURRENT_LIST_DIR}/VocabpipeWheels.cmake")
set(_cudnn_folders)
if(NOT CUDNN_LIBRARY OR NOT CUDNN_FRONTEND_INCLUDE_DIR)
  vocabpipe_wheel_folders(_cudnn_folders CUDNN)
endif()
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR
             HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${CUDAToolkit_LIBRARY_DIR} ${_cudnn_folders}
             PATH_SUFFIXES lib lib64 nvidia/cudnn/lib)
# The header of that library, not of another version.
get_filename_component(_cudnn_folder "${CUDNN_LIBRARY}" DIRECTORY)
find_path(CUDNN_INCLUDE_DIR cudnn.h
          HINTS "${_cudnn_folder}/../include" ${CUDNN_ROOT} ENV CUDNN_ROOT ${CUDAToolkit_INCLUDE_DIRS} ${_cudnn_folders}
          PATH_SUFFIXES include nvidia/cudnn/include)
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
          HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ${_cudnn_folders} PATH_SUFFIXES include)

vocabpipe_header_version(CUDNN_VERSION "${CUDNN_INCLUDE_DIR}/cudnn_version.h" CUDNN MAJOR MINOR PATCHLEVEL)
vocabpipe_header_version(CUDNN_FRONTEND_VERSION "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h"
                         CUDNN_FRONTEND MAJOR_VERSION MINOR_VERSION PATCH_VERSION)
# Its interface changes: this is the one that has been compiled.
set(CUDNN_FRONTEND_LEAST_VERSION 1.32)
set(CUDNN_FRONTEND_IS_NEW_ENOUGH FALSE)
if(CUDNN_FRONTEND_VERSION VERSION_GREATER_EQUAL CUDNN_FRONTEND_LEAST_VERSION)
  set(CUDNN_FRONTEND_IS_NEW_ENOUGH TRUE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN
  REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR CUDNN_FRONTEND_IS_NEW_ENOUGH
  VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::frontend)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
  add_library(CUDNN::frontend INTERFACE IMPORTED)
  set_target_properties(CUDNN::frontend PROPERTIES
                        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_FRONTEND_INCLUDE_DIR}"
                        INTERFACE_COMPILE_DEFINITIONS CUDNN_FRONTEND_SKIP_JSON_LIB  # graphs are not written to files
                        INTERFACE_LINK_LIBRARIES "CUDNN::cudnn;CUDA::nvrtc;CUDA::cudart;${CMAKE_DL_LIBS}")
endif()
