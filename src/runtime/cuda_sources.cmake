# SPDX-License-Identifier: Apache-2.0
# Sources of the CUDA device and its transports, relative to the repository; see
# kernels/cuda/sources.cmake.
set(VOCABPIPE_CUDA_RUNTIME_SOURCES
  src/runtime/device/cuda/counters.cpp
  src/runtime/device/cuda/device.cpp
  src/runtime/device/cuda/lanes.cpp
  src/runtime/device/cuda/product_choices.cpp
  src/runtime/tile_link/stream_exchange.cpp
  src/runtime/tile_link/streams.cpp
  src/runtime/transport/device_copies/transport.cpp
  src/runtime/transport/nccl/communicator.cpp
  src/runtime/transport/nccl/link_steps.cpp
  src/runtime/transport/nccl/transport.cpp)
