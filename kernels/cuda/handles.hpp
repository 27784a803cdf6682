// SPDX-License-Identifier: Apache-2.0
// Streams and events that destroy themselves.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <type_traits>

#include "kernels/cuda/check.hpp"

namespace vocabpipe::kernels::cuda {

struct DestroyStream {
    void operator()(cudaStream_t stream) const { (void)cudaStreamDestroy(stream); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;

struct DestroyEvent {
    void operator()(cudaEvent_t event) const { (void)cudaEventDestroy(event); }
};
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

/// The stream neither blocks the legacy default stream nor is blocked by it. Lower priorities run
/// first.
[[nodiscard]] inline Stream make_stream(int priority) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
          "cudaStreamCreateWithPriority");
    return Stream(stream);
}

enum class Timing : bool { no, yes };  ///< an event without times is cheaper to wait for
[[nodiscard]] inline Event make_event(Timing timing) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(
              &event, timing == Timing::yes ? cudaEventDefault : cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
    return Event(event);
}

}  // namespace vocabpipe::kernels::cuda
