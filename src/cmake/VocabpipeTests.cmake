# SPDX-License-Identifier: Apache-2.0
include(GoogleTest)

# One GoogleTest program, one CTest entry per test. Every test has a timeout; ranks share two cores, so
# teams of OpenMP threads stay at one and do not spin.
function(vocabpipe_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  add_executable(${name} ${arg_SOURCES})
  vocabpipe_compile_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES
    TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}"
    ENVIRONMENT "OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")
endfunction()
