// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace vocabpipe {

/// What moves tensors between the ranks' GPUs.
enum class CudaTransport : uint8_t {
    nccl,    ///< one GPU per rank; ranks are processes, or threads with a GPU each
    copies,  ///< ranks are threads of one process; any number of them may share a GPU
};

/// What make_cuda_device() needs besides the ordinal.
struct CudaDeviceOptions {
    int ordinal = 0;                                ///< as CUDA counts, after CUDA_VISIBLE_DEVICES
    CudaTransport transport = CudaTransport::nccl;  ///< what moves memory between the ranks' GPUs
    /// Multiprocessors that matrix products leave to others, because NCCL's kernels stay on theirs
    /// while they wait for other ranks, and a product spread over all of them waits for those, up
    /// to twice its time. Empty: nccl_multiprocessors(), with the links that are opened, where NCCL
    /// joins several ranks, else 0.
    /// Bits depend on it: a run on one rank that is to have those of several sets it.
    std::optional<int> left_multiprocessors = {};
    /// What time_products() returned in an earlier run (product_choices.hpp), the same on every
    /// rank, because bits depend on it. Empty, and for products that are not in it: the first
    /// algorithm of cuBLASLt's heuristic. InputFileError if it is of another GPU or library.
    std::string product_choices = {};
    /// Lets cuDNN compute the gradients of attention with an algorithm that adds in any order:
    /// faster on Hopper, but the last bits of two runs differ. Nothing where cuDNN does not
    /// compute.
    bool nondeterministic_attention = false;
};

/// Sets what CUDA reads once, at its first call in a process, where the user has not set it. To be
/// called before that; only the first call counts.
///
/// CUDA_DEVICE_MAX_CONNECTIONS=32: streams that share a connection to the GPU wait for each other,
/// and the lanes of a rank and NCCL's own streams are more than the usual 8. Where NCCL joins
/// several ranks CUDA_MODULE_LOADING=EAGER: a kernel that is loaded at its first launch may wait
/// for the whole device, where NCCL's kernels wait for other ranks. It takes seconds, so only
/// there.
void prepare_cuda(bool nccl_joins_ranks);

/// Multiprocessors that NCCL's kernels of a rank hold at the same time, at most. `links`: tile
/// links of the rank; one where tensor ranks share stages.
[[nodiscard]] int nccl_multiprocessors(int links = 0);

/// GPUs that this process sees; 0 without a driver. Prepares CUDA for a process without NCCL.
[[nodiscard]] int cuda_device_count();

/// Streams for every lane, cuBLASLt and the kernels of kernels/cuda on one GPU. To be called, used
/// and destroyed by the thread of its rank. Throws DeviceError where there is no such GPU. Prepares
/// CUDA for several ranks if the transport is NCCL.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace vocabpipe
