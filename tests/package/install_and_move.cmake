# SPDX-License-Identifier: Apache-2.0
# Installs the build tree to INSTALLED, moves that to MOVED, and looks for paths of this machine's
# build in what was installed.
file(REMOVE_RECURSE ${INSTALLED} ${MOVED})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${INSTALLED}
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(RENAME ${INSTALLED} ${MOVED})
file(GLOB_RECURSE files ${MOVED}/*.cmake ${MOVED}/*.pc ${MOVED}/*.hpp)
if(NOT files)
  message(FATAL_ERROR "nothing was installed to ${INSTALLED}")
endif()
foreach(file IN LISTS files)
  file(READ ${file} text)
  foreach(path ${BUILD} ${SOURCE} ${INSTALLED})
    string(FIND "${text}" "${path}" at)
    if(NOT at EQUAL -1)
      message(SEND_ERROR "${file} holds the path ${path}")
    endif()
  endforeach()
endforeach()
