// SPDX-License-Identifier: Apache-2.0
// What the tests of the CUDA operators share: a device with the context of one rank, and matrices
// and arrays that travel between host and device.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine.hpp"
#include "tests/kernels/matrix.hpp"
#include "vocabpipe/context.hpp"

namespace vocabpipe::kernels::test {

/// Device memory, poisoned: every fp32, bf16 and double in it is NaN.
class DeviceBytes {
public:
    explicit DeviceBytes(size_t size) : size_(size) {
        if (size == 0) return;
        cuda::check(cudaMalloc(&data_, size), "cudaMalloc");
        cuda::check(cudaMemset(data_, 0xff, size), "cudaMemset");
        cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    }
    ~DeviceBytes() { (void)cudaFree(data_); }
    DeviceBytes(DeviceBytes&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    DeviceBytes& operator=(DeviceBytes&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }

    [[nodiscard]] void* data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }
    operator std::span<std::byte>() const { return {static_cast<std::byte*>(data_), size_}; }

private:
    void* data_ = nullptr;
    size_t size_ = 0;
};

/// GPU 0 with a stream, a poisoned workspace, an engine and the context of one rank.
class Device {
public:
    explicit Device(size_t workspace_bytes = static_cast<size_t>(cuda::kPassWorkspaceBytes))
        : workspace_(workspace_bytes), engine_(0), context_({.poll = {}, .cuda = &engine_}) {
        cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags");
        engine_.use({.stream = stream_, .workspace = workspace_});
    }
    ~Device() {
        (void)cudaStreamSynchronize(stream_);
        (void)cudaStreamDestroy(stream_);
    }
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    [[nodiscard]] Context& context() { return context_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

    /// Waits for everything that was launched; throws what went wrong in it.
    void finish() const {
        cuda::check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
        cuda::check(cudaGetLastError(), "a kernel");
    }
    void upload(const void* from, void* to, size_t bytes) const {
        if (bytes == 0) return;
        cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_),
                    "cudaMemcpyAsync");
        finish();
    }
    void download(const void* from, void* to, size_t bytes) const {
        finish();
        if (bytes == 0) return;
        cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                    "cudaMemcpyAsync");
        finish();
    }

private:
    DeviceBytes workspace_;
    cudaStream_t stream_ = nullptr;
    cuda::Engine engine_;
    Context context_;
};

/// Why the tests cannot run on this machine; empty if they can.
inline std::string why_no_device() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (status == cudaSuccess && count > 0) return {};
    return std::string("no GPU: cudaGetDeviceCount: ") +
           (status == cudaSuccess ? "0 devices" : cudaGetErrorString(status));
}

/// Skips, with the reason, where there is no GPU.
class OnDevice : public testing::Test {
protected:
    void SetUp() override {
        if (const std::string reason = why_no_device(); !reason.empty()) GTEST_SKIP() << reason;
    }
};
template <typename Parameter>
class OnDeviceWithParam : public OnDevice, public testing::WithParamInterface<Parameter> {};

/// A Matrix on the device: the same elements, the same distance between rows, the same poison.
class DeviceMatrix {
public:
    DeviceMatrix(const Device& device, const Matrix& from)
        : device_(&device), shape_(from), bytes_(size_in_bytes(from)) {
        device.upload(from.view().data, bytes_.data(), bytes_.size());
        shape_.data = bytes_.data();
    }

    operator Tensor() const {
        return {bytes_.data(), shape_.rows, shape_.cols, shape_.stride, shape_.dtype};
    }
    operator ConstTensor() const { return shape_; }
    [[nodiscard]] Tensor view() const { return *this; }

    /// Once everything launched so far is done.
    [[nodiscard]] Matrix download() const {
        Matrix result(shape_.rows, shape_.cols, shape_.dtype, shape_.stride - shape_.cols);
        device_->download(bytes_.data(), result.view().data, bytes_.size());
        return result;
    }

private:
    static size_t size_in_bytes(const Matrix& matrix) {
        const ConstTensor view = matrix;
        return static_cast<size_t>(view.rows * view.stride * size_of(view.dtype));
    }

    const Device* device_;
    ConstTensor shape_;
    DeviceBytes bytes_;
};

/// An array on the device: ids, labels, weights, numbers of a step.
template <typename T>
class DeviceArray {
public:
    DeviceArray(const Device& device, const std::vector<T>& from)
        : device_(&device), count_(from.size()), bytes_(from.size() * sizeof(T)) {
        device.upload(from.data(), bytes_.data(), bytes_.size());
    }

    [[nodiscard]] T* data() const { return static_cast<T*>(bytes_.data()); }
    [[nodiscard]] std::span<T> span() const { return {data(), count_}; }
    operator std::span<T>() const { return span(); }
    operator std::span<const T>() const { return span(); }

    [[nodiscard]] std::vector<T> download() const {
        std::vector<T> result(count_);
        device_->download(bytes_.data(), result.data(), bytes_.size());
        return result;
    }

private:
    const Device* device_;
    size_t count_;
    DeviceBytes bytes_;
};

}  // namespace vocabpipe::kernels::test
