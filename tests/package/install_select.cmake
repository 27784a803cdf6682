# SPDX-License-Identifier: Apache-2.0
# Installs the component `select` alone to FOLDER, and looks for files of others in it.
#
#   cmake -D BUILD=... -D FOLDER=... -P install_select.cmake
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER} --component select
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE headers RELATIVE ${FOLDER} ${FOLDER}/*.h*)
set(expected bounding_rule error neighbour_graph sample_graph select_samples world)
list(TRANSFORM headers REPLACE "^include/vocabpipe/(.*)[.]hpp$" "\\1")
list(SORT headers)
if(NOT headers STREQUAL expected)
  message(SEND_ERROR "the headers are ${headers}; expected are ${expected}")
endif()
file(GLOB_RECURSE libraries RELATIVE ${FOLDER} ${FOLDER}/*.a ${FOLDER}/*.so*)
list(TRANSFORM libraries REPLACE "^.*/libvocabpipe_(.*)[.]a$" "\\1")
list(REMOVE_ITEM libraries parquet_rows)  # where built with it
list(SORT libraries)
set(expected kernels select select_files select_tables support world)
if(NOT libraries STREQUAL expected)
  message(SEND_ERROR "the libraries are ${libraries}; expected are ${expected}")
endif()
if(EXISTS ${FOLDER}/bin)
  message(SEND_ERROR "programs were installed")
endif()
