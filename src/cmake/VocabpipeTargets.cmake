# SPDX-License-Identifier: Apache-2.0
# Every target gets its flags here and nowhere else: no directory-wide or global options.

function(vocabpipe_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion
                              -Wno-missing-field-initializers>
    # g++ 12 sees an overlap in "literal" + std::string that is not there (PR 105651)
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
    # vectors wider than the machine's cross no boundary: whoever returns one is inlined
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-psabi>
    # a file of a unity build is no header, though it is included
    $<$<AND:$<BOOL:${CMAKE_UNITY_BUILD}>,$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers>)
  if(VOCABPIPE_WERROR)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                           $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  endif()
  if(VOCABPIPE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${VOCABPIPE_SANITIZE}
                           -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PUBLIC -fsanitize=${VOCABPIPE_SANITIZE})
  endif()
endfunction()

# A static library of one room. The repository root is on the include path for private headers, which
# are included by their full path ("kernels/bf16.hpp", "src/select/hash.hpp"). HEADERS: its
# part of include/vocabpipe/; each must compile alone (target all_verify_interface_header_sets).
# HEADER_DEPENDS: headers that its sources alone include; who links an installed library needs none.
function(vocabpipe_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS;HEADER_DEPENDS" ${ARGN})
  add_library(vocabpipe_${name} STATIC ${arg_SOURCES})
  add_library(vocabpipe::${name} ALIAS vocabpipe_${name})
  set_target_properties(vocabpipe_${name} PROPERTIES EXPORT_NAME ${name}
                        POSITION_INDEPENDENT_CODE ON)
  vocabpipe_compile_options(vocabpipe_${name})
  target_include_directories(vocabpipe_${name}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(vocabpipe_${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE_DEPENDS})
  foreach(headers_of IN LISTS arg_HEADER_DEPENDS)
    target_link_libraries(vocabpipe_${name} PRIVATE $<BUILD_INTERFACE:${headers_of}>)
  endforeach()
  list(TRANSFORM arg_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/vocabpipe/")
  target_sources(vocabpipe_${name} PUBLIC FILE_SET HEADERS
                 BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${arg_HEADERS})
  set_target_properties(vocabpipe_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# What reads, checks and prints: compiling it takes longer than running it ever will.
function(vocabpipe_compile_fast target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# Several libraries under one name.
function(vocabpipe_umbrella name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  add_library(vocabpipe_${name} INTERFACE)
  add_library(vocabpipe::${name} ALIAS vocabpipe_${name})
  set_target_properties(vocabpipe_${name} PROPERTIES EXPORT_NAME ${name})
  list(TRANSFORM arg_LIBRARIES PREPEND vocabpipe_)
  target_link_libraries(vocabpipe_${name} INTERFACE ${arg_LIBRARIES})
endfunction()

function(vocabpipe_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  vocabpipe_compile_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS})
endfunction()
