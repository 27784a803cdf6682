# SPDX-License-Identifier: Apache-2.0
# The product's CUDA sources against the stand-in toolkit of tests/support/cuda_stand_in: its headers
# come first on the include path, and a .cu file is compiled as C++. The product does not know.
# A target of this kind, and everything that links it, must not link the real toolkit.

# A static library of product sources: vocabpipe_stand_in_library(NAME SOURCES a.cu b.cpp DEPENDS ...).
# CHECKED: kernels tell the stand-in of every access to memory, by the calls that ThreadSanitizer's
# runtime takes elsewhere, and check that vectors are aligned. It is for builds without a sanitizer.
function(vocabpipe_stand_in_library name)
  cmake_parse_arguments(arg "CHECKED" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  vocabpipe_test_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC vocabpipe::cuda_stand_in ${arg_DEPENDS})
  if(arg_CHECKED)
    list(PREPEND arg_SOURCES CHECKED)
  endif()
  vocabpipe_compile_device_code_as_cxx(${name} ${arg_SOURCES})
endfunction()

# For targets that have .cu sources of their own (tests of the stand-in). Source properties hold in
# the directory that sets them: elsewhere the same file stays a CUDA source.
function(vocabpipe_compile_device_code_as_cxx target)
  # Kernels view floats as float4 and the like, which nvcc allows, and unroll by pragma.
  target_compile_options(${target} PRIVATE -fno-strict-aliasing -Wno-unknown-pragmas
                         # g++ does not see that a register array is read under the condition of its load
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized -Wno-maybe-uninitialized>)
  cmake_parse_arguments(arg "CHECKED" "" "" ${ARGN})
  if(arg_CHECKED AND NOT VOCABPIPE_SANITIZE)
    set_target_properties(${target} PROPERTIES CUDA_STAND_IN_CHECKED ON)
    target_link_options(${target} PUBLIC -fsanitize=alignment)
  endif()
  set(device_code ${arg_UNPARSED_ARGUMENTS})
  list(FILTER device_code INCLUDE REGEX "\\.cu$")
  if(device_code)
    # A source may be in two libraries, one of them checked.
    set(checks -fsanitize=thread,alignment -fno-sanitize-recover=all -DCUDA_STAND_IN_CHECKS_ACCESSES)
    set_source_files_properties(${device_code} PROPERTIES LANGUAGE CXX
      COMPILE_OPTIONS "-x;c++;$<$<BOOL:$<TARGET_PROPERTY:CUDA_STAND_IN_CHECKED>>:${checks}>")
  endif()
endfunction()
