# SPDX-License-Identifier: Apache-2.0
# cuDNN 9 and the headers of cudnn-frontend (https://github.com/NVIDIA/cudnn-frontend), which has no
# library: CUDNN_FRONTEND_INCLUDE_DIR holds cudnn_frontend.h.
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN
  REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR)
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
