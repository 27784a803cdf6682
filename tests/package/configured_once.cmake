# SPDX-License-Identifier: Apache-2.0
# Configures the project in a new folder, once, as users do: what a second time would have in its cache must not be
# missing from the package: the headers of the libraries for C. Those for C++ have file sets.
#
#   cmake -D SOURCE=... -D FOLDER=... -D GENERATOR=... -P configured_once.cmake
file(REMOVE_RECURSE "${FOLDER}")
execute_process(COMMAND "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${SOURCE}" -B "${FOLDER}"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
foreach(component IN ITEMS c c_output_layer)
  file(GLOB exports "${FOLDER}/CMakeFiles/Export/*/vocabpipe-${component}-targets.cmake")
  list(LENGTH exports count)
  if(NOT count EQUAL 1)
    message(FATAL_ERROR "${count} files of the component ${component}: ${exports}")
  endif()
  file(READ "${exports}" text)
  if(NOT text MATCHES "INTERFACE_INCLUDE_DIRECTORIES \"\\\${_IMPORT_PREFIX}/include")
    message(FATAL_ERROR "the component ${component} has no headers: ${exports}")
  endif()
endforeach()
file(REMOVE_RECURSE "${FOLDER}")
