// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <cstring>

#include "hooks.hpp"
#include "memory.hpp"
#include "stream.hpp"

using namespace cuda_stand_in;

namespace {

/// Rows of a copy; a contiguous copy is one row.
struct Area {
    size_t width;
    size_t height;
    [[nodiscard]] size_t span(size_t pitch) const {
        return height == 0 ? 0 : pitch * (height - 1) + width;
    }
};

/// The real copy reads and writes what it is told; an address outside of every allocation is an
/// error there as well, but only later and for all of the device.
bool in_place(const void* address, size_t bytes, bool device_side) {
    return device_side ? is_device_memory(address, bytes) : !points_to_device(address);
}

cudaError_t check(const void* dst, size_t dst_bytes, const void* src, size_t src_bytes,
                  cudaMemcpyKind kind) {
    if (dst_bytes == 0 || src_bytes == 0) {
        return cudaSuccess;
    }
    if (dst == nullptr || src == nullptr) {
        return cudaErrorInvalidValue;
    }
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) {
        return cudaErrorInvalidMemcpyDirection;
    }
    const bool inferred = kind == cudaMemcpyDefault;
    const bool to_device = inferred
                               ? points_to_device(dst)
                               : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device =
        inferred ? points_to_device(src)
                 : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return in_place(dst, dst_bytes, to_device) && in_place(src, src_bytes, from_device)
               ? cudaSuccess
               : cudaErrorInvalidValue;
}

void copy_rows(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, Area area) {
    for (size_t row = 0; row < area.height; ++row) {
        std::memmove(static_cast<char*>(dst) + row * dst_pitch,
                     static_cast<const char*>(src) + row * src_pitch, area.width);
    }
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count_, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (const cudaError_t error = check(dst, count_, src, count_, kind)) {
        return report(error);
    }
    return report(append(stream, [=] { copy_rows(dst, 0, src, 0, {count_, 1}); }));
}

cudaError_t cudaMemcpy(void* dst, const void* src, size_t count_, enum cudaMemcpyKind kind) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (const cudaError_t error = check(dst, count_, src, count_, kind)) {
        return report(error);
    }
    count(&Counters::blocking_copies);
    return report(append(nullptr, [=] { copy_rows(dst, 0, src, 0, {count_, 1}); }));
}

cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    const Area area{width, height};
    if (width > dpitch || width > spitch) {
        return report(cudaErrorInvalidPitchValue);
    }
    if (const cudaError_t error = check(dst, area.span(dpitch), src, area.span(spitch), kind)) {
        return report(error);
    }
    return report(append(stream, [=] { copy_rows(dst, dpitch, src, spitch, area); }));
}

cudaError_t cudaMemcpyPeerAsync(void* dst, int dstDevice, const void* src, int srcDevice,
                                size_t count_, cudaStream_t stream) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (dstDevice < 0 || dstDevice >= device_count() || srcDevice < 0 ||
        srcDevice >= device_count()) {
        return report(cudaErrorInvalidDevice);
    }
    if (const cudaError_t error = check(dst, count_, src, count_, cudaMemcpyDeviceToDevice)) {
        return report(error);
    }
    return report(append(stream, [=] { copy_rows(dst, 0, src, 0, {count_, 1}); }));
}

cudaError_t cudaMemsetAsync(void* devPtr, int value, size_t count_, cudaStream_t stream) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    if (count_ != 0 && !is_device_memory(devPtr, count_)) {
        return report(cudaErrorInvalidValue);
    }
    return report(append(stream, [=] { std::memset(devPtr, value, count_); }));
}

/// Returns before memory of a device is written, on a stream that non-blocking ones do not wait
/// for.
cudaError_t cudaMemset(void* devPtr, int value, size_t count_) {
    if (const cudaError_t error = enter(__func__)) {
        return error;
    }
    count(&Counters::blocking_copies);
    if (count_ == 0) {
        return cudaSuccess;
    }
    if (!is_device_memory(devPtr, count_)) {
        return report(cudaErrorInvalidValue);
    }
    defer(current_device(), [=] { std::memset(devPtr, value, count_); });
    return cudaSuccess;
}

}  // extern "C"
