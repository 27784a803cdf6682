# SPDX-License-Identifier: Apache-2.0
# Sources of the benchmarks that also run on GPUs; tests build them a second time, against the stand-in
# toolkit.
set(VOCABPIPE_BENCH_STEP_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/bench_step.cpp)
set(VOCABPIPE_BENCH_STEP_CUDA_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/product_timer_cuda.cpp
  ${PROJECT_SOURCE_DIR}/src/tool/train/product_cache.cpp)
set(VOCABPIPE_BENCH_EXPERTS_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/bench_experts.cpp
  ${CMAKE_CURRENT_LIST_DIR}/operator_device.cpp)
set(VOCABPIPE_BENCH_EXPERTS_CUDA_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/operator_device_cuda.cpp)
set(VOCABPIPE_BENCH_OVERLAP_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/bench_overlap.cpp
  ${CMAKE_CURRENT_LIST_DIR}/team_bench.cpp)
set(VOCABPIPE_BENCH_COMM_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/bench_comm.cpp
  ${CMAKE_CURRENT_LIST_DIR}/comm_bench.cpp)
