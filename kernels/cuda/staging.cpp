// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/staging.hpp"

#include <cstring>
#include <string>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/pinned_memory.hpp"

namespace vocabpipe::kernels::cuda {

namespace {

void wait_for(cudaEvent_t event) {
    if (has_ended(cudaEventQuery(event), "cudaEventQuery")) return;
    check(cudaEventSynchronize(event), "cudaEventSynchronize");
}

}  // namespace

/// Waits for copies that still read the memory.
Staging::~Staging() {
    for (const Area& area : areas_) {
        if (area.copied) (void)cudaEventSynchronize(area.copied.get());
    }
}

void Staging::make_areas(size_t bytes) {
    for (Area& area : areas_) {
        if (area.copied) wait_for(area.copied.get());
        area = {};
    }
    bytes_ = 0;
    for (Area& area : areas_) {
        area.memory.reset(
            allocate_pinned(bytes, "lists for a GPU: " + std::to_string(bytes) + " bytes"));
        area.copied = make_event(Timing::no);
    }
    bytes_ = bytes;
}

void Staging::write(std::span<const std::byte> from, std::span<std::byte> to, cudaStream_t stream) {
    if (to.size() > bytes_) make_areas(to.size());
    const Area& area = areas_[next_++ % areas_.size()];
    wait_for(area.copied.get());  // returns at once if never recorded
    std::memcpy(area.memory.get(), from.data(), from.size());
    check(
        cudaMemcpyAsync(to.data(), area.memory.get(), from.size(), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
    const cudaError_t recorded = cudaEventRecord(area.copied.get(), stream);
    if (recorded == cudaSuccess) return;
    synchronize(stream);  // nothing else tells when the area is free
    check(recorded, "cudaEventRecord");
}

bool Staging::would_wait() const {
    const Area& area = areas_[next_ % areas_.size()];
    return area.copied && !has_ended(cudaEventQuery(area.copied.get()), "cudaEventQuery");
}

}  // namespace vocabpipe::kernels::cuda
