# SPDX-License-Identifier: Apache-2.0
include(GoogleTest)

# mpirun runs as root in containers and with more ranks than cores; OpenMP teams stay at one and do not spin.
set(VOCABPIPE_TEST_ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe;OMP_NUM_THREADS=1;OMP_WAIT_POLICY=passive")

# CTest itself takes a tenth of a second per entry, more than most tests.
option(VOCABPIPE_GROUP_TESTS "One CTest entry for all tests of a program: for runs of everything" OFF)

option(VOCABPIPE_SLOW_TESTS "Tests that take more minutes than they find faults: for tests/run.sh --full" OFF)

# One GoogleTest program, one CTest entry per test or, with VOCABPIPE_GROUP_TESTS, SHARDS entries for
# all of them. LOOPS: its own sources compute for long, and are optimised; so are tests on GPUs, whose minutes
# are few. Every entry has a timeout; ranks share two cores, so teams of OpenMP threads stay at one
# and do not spin. PREFIX tells apart the tests of one source that is built twice.
function(vocabpipe_test name)
  cmake_parse_arguments(arg "LOOPS" "TIMEOUT;PREFIX;SHARDS" "SOURCES;DEPENDS;LABELS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 60)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  add_executable(${name} ${arg_SOURCES})
  if(arg_LOOPS OR "cuda" IN_LIST arg_LABELS)
    vocabpipe_test_options(${name})
  else()
    vocabpipe_compile_options(${name})
    target_compile_options(${name} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O0>)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest GTest::gmock)
  if("cuda" IN_LIST arg_LABELS)
    # It names the test behind which CUDA is of no use any more, and ends.
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/cuda_main.cpp)
    if("vocabpipe::cuda" IN_LIST arg_DEPENDS)
      target_compile_definitions(${name} PRIVATE VOCABPIPE_TEST_WITH_DEVICES)
    endif()
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  if(VOCABPIPE_GROUP_TESTS AND NOT "cuda" IN_LIST arg_LABELS)
    vocabpipe_test_shards(${name})
    return()
  endif()
  # gtest_discover_tests() loses all but the first entry of an ENVIRONMENT list; a launcher does not.
  set_target_properties(${name} PROPERTIES
    CROSSCOMPILING_EMULATOR "/usr/bin/env;${VOCABPIPE_TEST_ENVIRONMENT}")
  gtest_discover_tests(${name} TEST_PREFIX "${arg_PREFIX}" DISCOVERY_TIMEOUT 60 PROPERTIES
    TIMEOUT ${arg_TIMEOUT} LABELS "${arg_LABELS}")
endfunction()

# CTest entries PREFIX name, or name.1 to name.SHARDS, with arguments of vocabpipe_test().
macro(vocabpipe_test_shards name)
  if(NOT arg_SHARDS)
    set(arg_SHARDS 1)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  math(EXPR timeout "5 * ${arg_TIMEOUT}")
  foreach(shard RANGE ${last})
    set(entry ${arg_PREFIX}${name})
    if(arg_SHARDS GREATER 1)
      string(APPEND entry ".${shard}")
    endif()
    add_test(NAME ${entry} COMMAND ${name} --gtest_brief=1)
    # Those that may take long begin first, so that none runs alone at the end.
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${timeout} COST ${timeout} LABELS "${arg_LABELS}"
      ENVIRONMENT "${VOCABPIPE_TEST_ENVIRONMENT};GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endmacro()

# What is tested is optimised; what tests share, and tests that compute for long, rather compile fast, and
# all other tests faster still: most of CI's minutes are the compiler's.
function(vocabpipe_test_options name)
  vocabpipe_compile_options(${name})
  vocabpipe_compile_fast(${name})
endfunction()

# What several test programs share is compiled once.
function(vocabpipe_test_library name)
  vocabpipe_library(${name} ${ARGN})
  vocabpipe_compile_fast(vocabpipe_${name})
endfunction()

# One GoogleTest program with the main() of tests/support/mpi_main.cpp, one CTest entry per number of
# ranks: a launch costs half a second, so all tests of a program share one.
function(vocabpipe_mpi_test name)
  cmake_parse_arguments(arg "" "TIMEOUT" "SOURCES;DEPENDS;RANKS" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp)
  vocabpipe_test_options(${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} vocabpipe::executor GTest::gtest GTest::gmock)
  foreach(ranks IN LISTS arg_RANKS)
    add_test(NAME ${name}_np${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe -np ${ranks} $<TARGET_FILE:${name}>
                     --gtest_color=no)
    set_tests_properties(${name}_np${ranks} PROPERTIES
      TIMEOUT ${arg_TIMEOUT} LABELS mpi PROCESSORS ${ranks}
      ENVIRONMENT "${VOCABPIPE_TEST_ENVIRONMENT}")
  endforeach()
endfunction()
