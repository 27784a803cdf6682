# SPDX-License-Identifier: Apache-2.0
# The package: find_package(vocabpipe COMPONENTS schedule runtime c c_output_layer cuda) and pkg-config files.
# Targets have the names that they have here. An export set per component, so that who asks for
# `schedule` alone is not asked for MPI.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Those that link before those that are linked: the order of the .pc files' Libs.
set(VOCABPIPE_SCHEDULE_LIBRARIES plan step_costs schedules blocks model_config programs support)
get_target_property(VOCABPIPE_TRAIN_LIBRARIES vocabpipe_train INTERFACE_LINK_LIBRARIES)
list(TRANSFORM VOCABPIPE_TRAIN_LIBRARIES REPLACE "^vocabpipe_" "")
set(VOCABPIPE_RUNTIME_LIBRARIES ${VOCABPIPE_TRAIN_LIBRARIES} select_files checkpoint step batches optimizer checkpoint_format data model executor world kernels)
set(VOCABPIPE_CUDA_LIBRARIES cuda cuda_kernels)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/vocabpipe")

function(vocabpipe_install_component component)
  list(TRANSFORM ARGN PREPEND vocabpipe_ OUTPUT_VARIABLE targets)
  foreach(target IN LISTS targets)
    get_target_property(files ${target} HEADER_SET)
    list(APPEND headers ${files})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY VOCABPIPE_INSTALLED_HEADERS ${headers})
  install(TARGETS ${targets} EXPORT vocabpipe-${component}
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
  install(EXPORT vocabpipe-${component} NAMESPACE vocabpipe:: DESTINATION "${package_folder}"
          FILE vocabpipe-${component}-targets.cmake)
endfunction()

set(VOCABPIPE_COMPONENTS schedule runtime c)
install(TARGETS vocabpipe_schedule EXPORT vocabpipe-schedule)
install(TARGETS vocabpipe_train vocabpipe_runtime vocabpipe EXPORT vocabpipe-runtime)
vocabpipe_install_component(schedule ${VOCABPIPE_SCHEDULE_LIBRARIES})
vocabpipe_install_component(runtime ${VOCABPIPE_RUNTIME_LIBRARIES})
install(TARGETS vocabpipe_c EXPORT vocabpipe-c LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/vocabpipe/c/vocabpipe.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vocabpipe/c")
install(EXPORT vocabpipe-c NAMESPACE vocabpipe:: DESTINATION "${package_folder}" FILE vocabpipe-c-targets.cmake)
list(APPEND VOCABPIPE_COMPONENTS c_output_layer)
install(TARGETS vocabpipe_c_output_layer EXPORT vocabpipe-c_output_layer LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/vocabpipe/c/output_layer.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vocabpipe/c")
install(EXPORT vocabpipe-c_output_layer NAMESPACE vocabpipe:: DESTINATION "${package_folder}"
        FILE vocabpipe-c_output_layer-targets.cmake)
if(VOCABPIPE_ENABLE_CUDA)
  list(APPEND VOCABPIPE_COMPONENTS cuda)
  vocabpipe_install_component(cuda ${VOCABPIPE_CUDA_LIBRARIES})
endif()

# A public header that no library lists would be neither checked nor installed.
file(GLOB all_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/vocabpipe/*.hpp")
get_property(installed_headers GLOBAL PROPERTY VOCABPIPE_INSTALLED_HEADERS)
list(REMOVE_ITEM all_headers ${installed_headers})
if(all_headers)
  message(FATAL_ERROR "vocabpipe: not among the HEADERS of any vocabpipe_library(): ${all_headers}")
endif()

configure_package_config_file("${CMAKE_CURRENT_LIST_DIR}/vocabpipeConfig.cmake.in" vocabpipeConfig.cmake
                              INSTALL_DESTINATION "${package_folder}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(vocabpipeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
set(find_modules "${CMAKE_CURRENT_LIST_DIR}/FindDNNL.cmake")
if(VOCABPIPE_ENABLE_CUDA)
  list(APPEND find_modules "${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindCUDNN.cmake"
       "${CMAKE_CURRENT_LIST_DIR}/VocabpipeWheels.cmake")
endif()
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/vocabpipeConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/vocabpipeConfigVersion.cmake" ${find_modules}
        DESTINATION "${package_folder}")

# Static libraries alone, so what a private dependency needs stands in Libs as well.
file(RELATIVE_PATH PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
list(TRANSFORM VOCABPIPE_SCHEDULE_LIBRARIES PREPEND -lvocabpipe_ OUTPUT_VARIABLE PC_SCHEDULE_LIBS)
list(TRANSFORM VOCABPIPE_RUNTIME_LIBRARIES PREPEND -lvocabpipe_ OUTPUT_VARIABLE PC_RUNTIME_LIBS)
list(APPEND PC_RUNTIME_LIBS ${DNNL_LIBRARY} ${OpenMP_CXX_FLAGS})
if(VOCABPIPE_ENABLE_MPI)
  list(APPEND PC_RUNTIME_LIBS ${MPI_CXX_LIBRARIES})
  list(FILTER PC_RUNTIME_LIBS EXCLUDE REGEX "mpi_cxx|mpicxx")  # the removed C++ bindings
endif()
list(JOIN PC_SCHEDULE_LIBS " " PC_SCHEDULE_LIBS)
list(JOIN PC_RUNTIME_LIBS " " PC_RUNTIME_LIBS)
foreach(pc vocabpipe vocabpipe-schedule vocabpipe-c vocabpipe-c-output-layer)
  configure_file("${CMAKE_CURRENT_LIST_DIR}/${pc}.pc.in" ${pc}.pc @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${pc}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endforeach()

if(VOCABPIPE_BUILD_TOOLS)
  install(TARGETS vocabpipe_tool train_gpt DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
