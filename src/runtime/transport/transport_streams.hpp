// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <cuda_runtime.h>

namespace vocabpipe {

/// Streams on which a transport between GPUs enqueues, by channel.
struct TransportStreams {
    cudaStream_t forward = nullptr;
    cudaStream_t backward = nullptr;
    cudaStream_t collective = nullptr;

    [[nodiscard]] cudaStream_t of(Channel channel) const {
        return channel == Channel::forward    ? forward
               : channel == Channel::backward ? backward
                                              : collective;
    }
};

}  // namespace vocabpipe
