# SPDX-License-Identifier: Apache-2.0
# Programs and scripts for GPUs, on the stand-in toolkit.
include(${PROJECT_SOURCE_DIR}/benchmarks/programs.cmake)

# Of what starts ranks, one file knows of devices.
vocabpipe_stand_in_library(launch_on_stand_in
  SOURCES "$<FILTER:$<TARGET_OBJECTS:vocabpipe_launch>,EXCLUDE,/devices\\.cpp>"
          ${PROJECT_SOURCE_DIR}/src/tool/launch/devices.cpp
          ${PROJECT_SOURCE_DIR}/src/tool/train/product_cache.cpp
          ${PROJECT_SOURCE_DIR}/src/tool/train/products_after_training.cpp
  DEPENDS vocabpipe::train vocabpipe::support cuda_on_stand_in)
target_compile_definitions(launch_on_stand_in PRIVATE VOCABPIPE_WITH_CUDA)

vocabpipe_program(bench_step_on_stand_in
  SOURCES ${VOCABPIPE_BENCH_STEP_SOURCES} ${PROJECT_SOURCE_DIR}/benchmarks/product_timer_cuda.cpp
          ${PROJECT_SOURCE_DIR}/benchmarks/timed_steps.cpp
  DEPENDS launch_on_stand_in CLI11::CLI11 nlohmann_json::nlohmann_json)
vocabpipe_program(bench_comm_on_stand_in
  SOURCES ${VOCABPIPE_BENCH_COMM_SOURCES}
  DEPENDS launch_on_stand_in CLI11::CLI11)
vocabpipe_program(bench_overlap_on_stand_in
  SOURCES ${VOCABPIPE_BENCH_OVERLAP_SOURCES}
  DEPENDS launch_on_stand_in CLI11::CLI11)
vocabpipe_program(gpu_probe_on_stand_in
  SOURCES ${PROJECT_SOURCE_DIR}/benchmarks/gpu_probe.cpp
  DEPENDS vocabpipe::nccl_stand_in)
foreach(program bench_step_on_stand_in bench_comm_on_stand_in bench_overlap_on_stand_in)
  target_compile_definitions(${program} PRIVATE VOCABPIPE_WITH_CUDA)
  vocabpipe_compile_fast(${program})
endforeach()

vocabpipe_benchmark_test(CudaStandIn.bench_step LABELS cpu
  COMMAND bench_step_on_stand_in --device cuda --untimed-products --num-layers 1 --hidden-size 32 --num-attention-heads 2
          --seq-length 8 --vocab-size 61 --micro-batch-size 1 --microbatches 2 --steps 1)
set_tests_properties(CudaStandIn.bench_step PROPERTIES PASS_REGULAR_EXPRESSION
  "# products: [1-9][0-9]* by cuBLASLt, 0 by the tiled kernel, 0 grouped by CUTLASS. attention: 0 by cuDNN, [1-9][0-9]* by own .*# wrong: 0")
set(small_messages -b 1 -e 2K -f 16 -n 2 -w 1 --distributed-timeout-seconds 30)
foreach(transport copies nccl)
  vocabpipe_benchmark_test(CudaStandIn.bench_comm_${transport} LABELS cpu
    COMMAND bench_comm_on_stand_in --transport ${transport} --ranks 3 ${small_messages})
endforeach()
foreach(link copies nccl)
  vocabpipe_benchmark_test(CudaStandIn.bench_overlap_${link} LABELS cpu
    COMMAND bench_overlap_on_stand_in --link ${link} --ranks 3 --pieces 1,2 --rows 192 --inner 16 --columns 16
            --rounds 2)
endforeach()
vocabpipe_benchmark_test(bench_comm_threads LABELS cpu
  COMMAND bench_comm_on_stand_in --transport threads --ranks 3 ${small_messages})
if(VOCABPIPE_ENABLE_MPI)
  vocabpipe_benchmark_test(bench_comm_mpi_np2 LABELS mpi
    COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe -np 2
            $<TARGET_FILE:bench_comm_on_stand_in> --transport mpi ${small_messages})
endif()

# Products that are timed once: by benchmarks, for trainings. Its programs have a timeout each.
if(TARGET bench_vocab_on_stand_in)
  add_test(NAME CudaStandIn.product_cache
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/product_cache_test.sh ${PROJECT_BINARY_DIR}/bin)
  set_tests_properties(CudaStandIn.product_cache PROPERTIES
    TIMEOUT 300 LABELS cpu ENVIRONMENT "${VOCABPIPE_TEST_ENVIRONMENT}")
endif()

# gpu_bundle.sh and gpu.sh in a root without network, GPU, apt and development packages, with the
# stand-in's programs. Its test is skipped where a process may not have a root of its own.
if(VOCABPIPE_BUILD_TOOLS AND TARGET bench_vocab_on_stand_in)
  vocabpipe_program(train_gpt_on_stand_in
    SOURCES $<TARGET_OBJECTS:train_gpt>
            "$<FILTER:$<TARGET_OBJECTS:vocabpipe_command_line>,EXCLUDE,/(product_cache|products_after_training)\\.cpp>"
    DEPENDS launch_on_stand_in vocabpipe::flag_parser)
  add_test(NAME CudaStandIn.gpu_sh_offline
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/gpu_offline_test.sh ${PROJECT_BINARY_DIR}/bin)
  set_tests_properties(CudaStandIn.gpu_sh_offline PROPERTIES
    TIMEOUT 500 COST 500 SKIP_RETURN_CODE 77 LABELS cpu ENVIRONMENT "${VOCABPIPE_TEST_ENVIRONMENT}")
endif()

# gpu_peers.sh at tiny sizes: with a script in PyTorch's place, and with PyTorch where there is one.
if(VOCABPIPE_BUILD_TOOLS AND VOCABPIPE_BUILD_BENCHMARKS AND TARGET bench_vocab_on_stand_in)
  set(compare ${CMAKE_CURRENT_SOURCE_DIR}/gpu_peers_test.sh ${PROJECT_BINARY_DIR}/bin)
  add_test(NAME gpu_peers COMMAND ${compare})
  add_test(NAME gpu_peers_with_torch COMMAND ${compare} --with-torch)
  set_tests_properties(gpu_peers gpu_peers_with_torch PROPERTIES
    TIMEOUT 300 COST 300 SKIP_RETURN_CODE 77 LABELS cpu ENVIRONMENT "${VOCABPIPE_TEST_ENVIRONMENT};OMP_NUM_THREADS=1")
endif()
