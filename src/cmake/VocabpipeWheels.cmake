# SPDX-License-Identifier: Apache-2.0
# What find modules of libraries that come as Python wheels share; installed beside FindCUDNN.cmake.

# Sets `variable` to the folders where pip puts packages, as <name>_PYTHON has it: a program, in the cache.
function(vocabpipe_wheel_folders variable name)
  set(folders)
  find_program(${name}_PYTHON NAMES python3 python DOC "Python whose packages are searched for ${name}")
  mark_as_advanced(${name}_PYTHON)
  if(${name}_PYTHON)
    execute_process(
      COMMAND "${${name}_PYTHON}" -c
              "import site, sysconfig; print(';'.join([sysconfig.get_paths()['purelib'], sysconfig.get_paths()['platlib'], site.getusersitepackages()]))"
      OUTPUT_VARIABLE folders OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET TIMEOUT 30)
  endif()
  set(${variable} "${folders}" PARENT_SCOPE)
endfunction()

# Sets `variable` to "1.2.3" of the lines "#define <prefix>_<part> <number>" of a header; empty without it.
function(vocabpipe_header_version variable file prefix)
  set(parts)
  if(EXISTS "${file}")
    foreach(part IN LISTS ARGN)
      file(STRINGS "${file}" line REGEX "^#define ${prefix}_${part} +[0-9]+")
      string(REGEX REPLACE "^#define ${prefix}_${part} +([0-9]+).*" "\\1" number "${line}")
      list(APPEND parts "${number}")
    endforeach()
  endif()
  list(JOIN parts "." version)
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()
