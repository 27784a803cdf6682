// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace vocabpipe {

/// How tensors move between the ranks' GPUs.
enum class CudaTransport : uint8_t {
    nccl,    ///< one GPU per rank; ranks are processes, or threads with a GPU each
    copies,  ///< ranks are threads of one process; any number of them may share a GPU
};

/// What make_cuda_device() needs besides the ordinal.
struct CudaDeviceOptions {
    int ordinal = 0;                                ///< as CUDA counts, after CUDA_VISIBLE_DEVICES
    CudaTransport transport = CudaTransport::nccl;  ///< between the ranks' GPUs
    /// Multiprocessors that matrix products leave free. NCCL's kernels occupy theirs while they
    /// wait for other ranks, and a product spread over all multiprocessors would wait for those
    /// kernels, up to twice its time. Empty: nccl_multiprocessors() of the links opened where NCCL
    /// joins several ranks, else 0. Bits depend on it: set it in a run on one rank that must have
    /// the bits of several.
    std::optional<int> left_multiprocessors = {};
    /// What time_products() returned in an earlier run (product_choices.hpp), the same on every
    /// rank, because bits depend on it. Empty, and for products that are not listed: the first
    /// algorithm of cuBLASLt's heuristic. InputFileError if the text is for another GPU or library.
    std::string product_choices = {};
    /// Lets cuDNN compute the gradients of attention with an algorithm that adds in any order:
    /// faster on Hopper, but the last bits of two runs differ. No effect where cuDNN is not used.
    bool nondeterministic_attention = false;
};

/// Sets environment variables that CUDA reads at its first call in a process, unless the user has
/// set them. Call before any CUDA call; only the first call counts.
///
/// CUDA_DEVICE_MAX_CONNECTIONS=32: streams that share a connection to the GPU wait for each other,
/// and the lanes of a rank and NCCL's own streams exceed the default of 8. Where NCCL joins several
/// ranks also CUDA_MODULE_LOADING=EAGER: loading a kernel at its first launch may wait for the
/// whole device, on which NCCL's kernels wait for other ranks. It takes seconds, so it is not set
/// elsewhere.
void prepare_cuda(bool nccl_joins_ranks);

/// Most multiprocessors that NCCL's kernels of a rank occupy at the same time. `links`: tile links
/// of the rank; one where tensor ranks share stages.
[[nodiscard]] int nccl_multiprocessors(int links = 0);

/// GPUs that this process sees; 0 without a driver. Prepares CUDA for a process without NCCL.
[[nodiscard]] int cuda_device_count();

/// Streams for every lane, cuBLASLt and the kernels of kernels/cuda on one GPU. Made, used and
/// destroyed by the thread of its rank. Throws DeviceError where there is no such GPU. Prepares
/// CUDA for several ranks if the transport is NCCL.
[[nodiscard]] std::unique_ptr<Device> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace vocabpipe
