// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "kernels/cuda/handles.hpp"

namespace vocabpipe::kernels::cuda {

/// Two areas of pinned host memory, used in turn, so that copies to the device need not be waited
/// for.
class Staging {
public:
    Staging() = default;
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    /// Enqueues a copy of `from`, which may change on return, to the first bytes of `to`. Areas are
    /// as large as the largest `to`, so that longer `from`s need no allocation. Waits until the
    /// last copy but one is done. Throws OutOfMemoryError.
    void write(std::span<const std::byte> from, std::span<std::byte> to, cudaStream_t stream);
    [[nodiscard]] bool would_wait() const;

private:
    struct Free {
        void operator()(std::byte* data) const { (void)cudaFreeHost(data); }
    };
    struct Area {
        std::unique_ptr<std::byte, Free> memory;
        Event copied;
    };
    void make_areas(size_t bytes);

    std::array<Area, 2> areas_;
    size_t bytes_ = 0;  ///< of each area
    size_t next_ = 0;
};

}  // namespace vocabpipe::kernels::cuda
