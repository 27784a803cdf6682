# SPDX-License-Identifier: Apache-2.0
# For CMAKE_PROJECT_INCLUDE of a project that asks for the component select: an error at its end if that brought others.
function(check_components)
  foreach(other IN ITEMS schedule runtime programs executor model train)
    if(TARGET vocabpipe::${other})
      message(FATAL_ERROR "the component select brought vocabpipe::${other}")
    endif()
  endforeach()
endfunction()
cmake_language(DEFER CALL check_components)
