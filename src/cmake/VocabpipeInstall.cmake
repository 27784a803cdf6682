# SPDX-License-Identifier: Apache-2.0
# The package: find_package(vocabpipe COMPONENTS schedule select runtime c c_output_layer cuda) and
# pkg-config files. Targets have the names that they have here. An export set per component, so that a
# project with `schedule` alone is not asked for MPI; `support` and `world` are sets of what several components link.
# `cmake --install BUILD --component select` installs what vocabpipe::select needs and nothing else.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

# Those that link before those that are linked: the order of the .pc files' Libs.
set(VOCABPIPE_SCHEDULE_LIBRARIES plan step_costs schedules blocks model_config programs)
get_target_property(VOCABPIPE_TRAIN_LIBRARIES vocabpipe_train INTERFACE_LINK_LIBRARIES)
list(TRANSFORM VOCABPIPE_TRAIN_LIBRARIES REPLACE "^vocabpipe_" "")
set(VOCABPIPE_RUNTIME_LIBRARIES
  ${VOCABPIPE_TRAIN_LIBRARIES} checkpoint step batches optimizer checkpoint_format data model executor)
set(VOCABPIPE_SELECT_LIBRARIES select select_tables)
if(VOCABPIPE_ENABLE_PARQUET)
  list(APPEND VOCABPIPE_SELECT_LIBRARIES parquet_rows)
endif()
# The trainer reads subsets, but no tables of others.
set(VOCABPIPE_WORLD_LIBRARIES select_files world kernels)
set(VOCABPIPE_CUDA_LIBRARIES cuda cuda_kernels)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/vocabpipe")

# COMPONENT is that of cmake --install to which libraries belong and, unless WITHOUT_HEADERS, their headers.
function(vocabpipe_install_libraries export_set)
  cmake_parse_arguments(arg "WITHOUT_HEADERS" "COMPONENT" "" ${ARGN})
  if(NOT arg_COMPONENT)
    set(arg_COMPONENT Unspecified)
  endif()
  set(headers_component ${arg_COMPONENT})
  if(arg_WITHOUT_HEADERS)
    set(headers_component Unspecified)
  endif()
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND vocabpipe_ OUTPUT_VARIABLE targets)
  foreach(target IN LISTS targets)
    get_target_property(files ${target} HEADER_SET)
    list(APPEND headers ${files})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY VOCABPIPE_INSTALLED_HEADERS ${headers})
  install(TARGETS ${targets} EXPORT vocabpipe-${export_set}
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT ${arg_COMPONENT}
          FILE_SET HEADERS DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT ${headers_component})
endfunction()

function(vocabpipe_install_export export_set)
  cmake_parse_arguments(arg "" "COMPONENT" "" ${ARGN})
  if(NOT arg_COMPONENT)
    set(arg_COMPONENT Unspecified)
  endif()
  install(EXPORT vocabpipe-${export_set} NAMESPACE vocabpipe:: DESTINATION "${package_folder}"
          FILE vocabpipe-${export_set}-targets.cmake COMPONENT ${arg_COMPONENT})
endfunction()

vocabpipe_install_libraries(support support COMPONENT select)
vocabpipe_install_export(support COMPONENT select)
vocabpipe_install_libraries(world select_files world COMPONENT select)
# Operators need the headers of a device and its tensors, which programs that select do not call.
vocabpipe_install_libraries(world kernels COMPONENT select WITHOUT_HEADERS)
vocabpipe_install_export(world COMPONENT select)
vocabpipe_install_libraries(select ${VOCABPIPE_SELECT_LIBRARIES} COMPONENT select)
vocabpipe_install_export(select COMPONENT select)
install(TARGETS vocabpipe_schedule EXPORT vocabpipe-schedule)
vocabpipe_install_libraries(schedule ${VOCABPIPE_SCHEDULE_LIBRARIES})
vocabpipe_install_export(schedule)
install(TARGETS vocabpipe_train vocabpipe_runtime vocabpipe EXPORT vocabpipe-runtime)
vocabpipe_install_libraries(runtime ${VOCABPIPE_RUNTIME_LIBRARIES})
vocabpipe_install_export(runtime)
install(TARGETS vocabpipe_c EXPORT vocabpipe-c LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/vocabpipe/c/vocabpipe.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vocabpipe/c")
vocabpipe_install_export(c)
install(TARGETS vocabpipe_c_output_layer EXPORT vocabpipe-c_output_layer LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/vocabpipe/c/output_layer.h"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/vocabpipe/c")
vocabpipe_install_export(c_output_layer)
if(VOCABPIPE_ENABLE_CUDA)
  vocabpipe_install_libraries(cuda ${VOCABPIPE_CUDA_LIBRARIES})
  vocabpipe_install_export(cuda)
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
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/vocabpipeConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/vocabpipeConfigVersion.cmake"
        DESTINATION "${package_folder}" COMPONENT select)
if(VOCABPIPE_ENABLE_PARQUET)
  install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindArrowParquet.cmake" DESTINATION "${package_folder}" COMPONENT select)
endif()
if(VOCABPIPE_ENABLE_CUDA)
  install(FILES "${CMAKE_CURRENT_LIST_DIR}/FindNCCL.cmake" "${CMAKE_CURRENT_LIST_DIR}/FindCUDNN.cmake"
                "${CMAKE_CURRENT_LIST_DIR}/VocabpipeWheels.cmake"
          DESTINATION "${package_folder}")
endif()

# Static libraries alone, so what a private dependency needs stands in Libs as well.
file(RELATIVE_PATH PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
set(of_world ${OpenMP_CXX_FLAGS})
if(VOCABPIPE_ENABLE_MPI)
  list(APPEND of_world ${MPI_CXX_LIBRARIES})
  list(FILTER of_world EXCLUDE REGEX "mpi_cxx|mpicxx")  # the removed C++ bindings
endif()
if(VOCABPIPE_ENABLE_PARQUET)
  get_target_property(arrow ArrowParquet::parquet INTERFACE_LINK_LIBRARIES)
  get_target_property(parquet ArrowParquet::parquet IMPORTED_LOCATION)
  get_filename_component(folder "${parquet}" DIRECTORY)  # of a Python package, where no loader looks
  set(of_select ${parquet} ${arrow} -Wl,-rpath,${folder})
endif()
function(vocabpipe_pc_libs variable)
  cmake_parse_arguments(arg "" "" "LIBRARIES;OTHERS" ${ARGN})
  list(TRANSFORM arg_LIBRARIES PREPEND -lvocabpipe_)
  list(JOIN arg_LIBRARIES " " libraries)
  list(JOIN arg_OTHERS " " others)
  string(STRIP "${libraries} ${others}" libs)
  set(${variable} "${libs}" PARENT_SCOPE)
endfunction()
vocabpipe_pc_libs(PC_SCHEDULE_LIBS LIBRARIES ${VOCABPIPE_SCHEDULE_LIBRARIES} support)
vocabpipe_pc_libs(PC_SELECT_LIBS LIBRARIES ${VOCABPIPE_SELECT_LIBRARIES} ${VOCABPIPE_WORLD_LIBRARIES} support
                  OTHERS ${of_world} ${of_select})
vocabpipe_pc_libs(PC_RUNTIME_LIBS LIBRARIES ${VOCABPIPE_RUNTIME_LIBRARIES} ${VOCABPIPE_WORLD_LIBRARIES}
                  OTHERS ${of_world})
function(vocabpipe_install_pc name component)
  configure_file("${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${name}.pc.in" ${name}.pc @ONLY)
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
          COMPONENT ${component})
endfunction()
vocabpipe_install_pc(vocabpipe-select select)
foreach(pc vocabpipe vocabpipe-schedule vocabpipe-c vocabpipe-c-output-layer)
  vocabpipe_install_pc(${pc} Unspecified)
endforeach()

if(VOCABPIPE_BUILD_TOOLS)
  install(TARGETS vocabpipe_tool train_gpt DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT select)
