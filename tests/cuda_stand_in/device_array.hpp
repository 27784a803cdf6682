// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

namespace stand_in_test {

/// Elements in device memory; copied to and from the host by blocking calls.
template <typename T>
class DeviceArray {
public:
    explicit DeviceArray(size_t count) : count_(count) {
        EXPECT_EQ(cudaMalloc(&data_, count * sizeof(T)), cudaSuccess);
    }
    explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
        EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
                  cudaSuccess);
    }
    ~DeviceArray() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
    DeviceArray(const DeviceArray&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;

    [[nodiscard]] T* get() const { return data_; }
    [[nodiscard]] size_t bytes() const { return count_ * sizeof(T); }
    [[nodiscard]] std::vector<T> values() const {
        std::vector<T> copied(count_);
        EXPECT_EQ(cudaMemcpy(copied.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
        return copied;
    }

private:
    T* data_ = nullptr;
    size_t count_ = 0;
};

/// A non-blocking stream.
class Stream {
public:
    Stream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
    ~Stream() { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    operator cudaStream_t() const { return stream_; }
    void synchronize() const { EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess); }

private:
    cudaStream_t stream_ = nullptr;
};

class Event {
public:
    explicit Event(unsigned int flags = cudaEventDefault) {
        EXPECT_EQ(cudaEventCreateWithFlags(&event_, flags), cudaSuccess);
    }
    ~Event() { EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    operator cudaEvent_t() const { return event_; }

private:
    cudaEvent_t event_ = nullptr;
};

template <typename... P, typename... A>
cudaError_t launch(dim3 grid, dim3 block, cudaStream_t stream, void (*kernel)(P...), A&&... args) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}

}  // namespace stand_in_test
