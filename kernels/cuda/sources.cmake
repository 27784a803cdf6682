# SPDX-License-Identifier: Apache-2.0
# Sources of the CUDA kernels, relative to the repository: compiled by nvcc where CUDA is enabled, and
# by the C++ compiler against the tests' stand-in toolkit everywhere.
set(VOCABPIPE_CUDA_KERNEL_SOURCES
  kernels/cuda/activation.cu
  kernels/cuda/adamw.cu
  kernels/cuda/attention.cpp
  kernels/cuda/attention_backward.cu
  kernels/cuda/attention_forward.cu
  kernels/cuda/attention_sinks.cu
  kernels/cuda/attention_statistics.cu
  kernels/cuda/cached_attention.cu
  kernels/cuda/column_sums.cu
  kernels/cuda/distillation.cu
  kernels/cuda/elementwise.cu
  kernels/cuda/embedding.cu
  kernels/cuda/engine.cpp
  kernels/cuda/expert_rows.cu
  kernels/cuda/fold_partials.cu
  kernels/cuda/ordered_sum.cu
  kernels/cuda/gated.cu
  kernels/cuda/gemm.cpp
  kernels/cuda/grouped_linear.cpp
  kernels/cuda/head_norm.cu
  kernels/cuda/launch_errors.cpp
  kernels/cuda/layer_norm.cu
  kernels/cuda/linear.cpp
  kernels/cuda/logits.cu
  kernels/cuda/memory.cpp
  kernels/cuda/operators.cpp
  kernels/cuda/policy_loss.cu
  kernels/cuda/product_choices.cpp
  kernels/cuda/product_plan.cpp
  kernels/cuda/product_shape.cpp
  kernels/cuda/rms_norm.cu
  kernels/cuda/rotary.cu
  kernels/cuda/router.cu
  kernels/cuda/router_sums.cu
  kernels/cuda/row_additions.cu
  kernels/cuda/row_losses.cu
  kernels/cuda/row_sums.cu
  kernels/cuda/rows.cu
  kernels/cuda/side_by_side.cpp
  kernels/cuda/staging.cpp
  kernels/cuda/step.cu
  kernels/cuda/sum_of_squares.cu
  kernels/cuda/tiled_gemm.cu
  kernels/cuda/time_products.cpp
  kernels/cuda/vocabulary.cu)
# Products of all experts in one launch, but for the launch itself, which is CUTLASS's; in the tests it is
# a kernel of theirs.
set(VOCABPIPE_GROUPED_LAUNCH_SOURCES
  kernels/cuda/grouped_arrays.cu
  kernels/cuda/grouped_launch.cpp)
# These sources alone know whether there is one, so that a folder that is configured with and without it
# compiles little anew.
set(VOCABPIPE_GROUPED_LAUNCH_USERS
  kernels/cuda/grouped_launch.cpp
  kernels/cuda/grouped_linear.cpp)
