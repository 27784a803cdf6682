// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "completion.hpp"
#include "hooks.hpp"
#include "lost_context.hpp"
#include "race_checker.hpp"
#include "stream.hpp"
#include "stream_queue.hpp"

/// An event: the point of a stream at which it was recorded last; none before the first record.
struct CUevent_st {
    int device;
    unsigned int flags;
    std::mutex mutex;
    cuda_stand_in::CompletionPointer recorded;

    /// The point as of now. Reading it orders nobody.
    [[nodiscard]] cuda_stand_in::CompletionPointer point() {
        const cuda_stand_in::UnseenLock lock(mutex);
        return recorded;
    }
};

namespace {

struct Events {
    std::mutex mutex;
    std::unordered_map<cudaEvent_t, std::shared_ptr<CUevent_st>> live;
};

Events& events() {
    static auto* const all = new Events;
    return *all;
}

std::shared_ptr<CUevent_st> find(cudaEvent_t event) {
    const cuda_stand_in::UnseenLock lock(events().mutex);
    const auto found = events().live.find(event);
    return found == events().live.end() ? nullptr : found->second;
}

}  // namespace

using namespace cuda_stand_in;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (event == nullptr) {
        return report(cudaErrorInvalidValue);
    }
    auto created = std::make_shared<CUevent_st>();
    created->device = current_device();
    created->flags = flags;
    *event = created.get();
    const UnseenLock lock(events().mutex);
    events().live.emplace(*event, std::move(created));
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto kept = find(event);
    const UnseenLock lock(events().mutex);
    return events().live.erase(event) == 1 ? cudaSuccess : report(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto found = find(event);
    if (found == nullptr || found->device != device_of(stream)) {
        return report(cudaErrorInvalidResourceHandle);
    }
    CompletionPointer point = CompletionPointer::make();
    {
        const UnseenLock lock(found->mutex);
        found->recorded = point;
    }
    return report(append(stream, [point] { point->reach(); }));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto found = find(event);
    if (found == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    const CompletionPointer point = found->point();
    if (!point) {
        return cudaSuccess;
    }
    return report(append(
        stream, [point, stop = stop_token_of(stream)] { point->wait(stop); },
        CUstream_st::Issue::when_it_ends));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto found = find(event);
    if (found == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    const CompletionPointer point = found->point();
    return !point || point->reached() ? cudaSuccess : report(cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    count(&Counters::event_synchronisations);
    const auto found = find(event);
    if (found == nullptr) {
        return report(cudaErrorInvalidResourceHandle);
    }
    if (const CompletionPointer point = found->point()) {
        point->wait();
    }
    return report(context_error(found->device));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const auto first = find(start);
    const auto last = find(end);
    if (ms == nullptr) {
        return report(cudaErrorInvalidValue);
    }
    if (first == nullptr || last == nullptr ||
        ((first->flags | last->flags) & cudaEventDisableTiming)) {
        return report(cudaErrorInvalidResourceHandle);
    }
    const CompletionPointer from = first->point();
    const CompletionPointer to = last->point();
    if (!from || !to) {
        return report(cudaErrorInvalidResourceHandle);
    }
    if (!from->reached() || !to->reached()) {
        return report(cudaErrorNotReady);
    }
    *ms = std::chrono::duration<float, std::milli>(to->time() - from->time()).count();
    return cudaSuccess;
}

}  // extern "C"
