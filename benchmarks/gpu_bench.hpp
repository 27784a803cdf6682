// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "benchmarks/median.hpp"
#include "benchmarks/random_blocks.hpp"
#include "kernels/cuda/check.hpp"
#include "kernels/cuda/engine.hpp"
#include "kernels/cuda/product_choices.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tensor.hpp"

// Helpers of benchmarks of single operators on a GPU: memory, random matrices, a stream.
namespace vocabpipe::bench {

/// Selects the first GPU and returns its name. DeviceError if there is none.
inline std::string first_gpu() {
    int count = 0;
    if (const cudaError_t status = cudaGetDeviceCount(&count);
        status != cudaSuccess || count == 0) {
        throw DeviceError(std::string("needs a GPU: ") +
                          (status == cudaSuccess ? "there is none" : cudaGetErrorString(status)));
    }
    kernels::cuda::check(cudaSetDevice(0), "cudaSetDevice");
    return kernels::cuda::name_of_gpu();
}

/// Device memory, zeroed.
class Buffer {
public:
    explicit Buffer(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
        if (bytes == 0) return;
        if (cudaMalloc(&data_, bytes_) != cudaSuccess) {
            (void)cudaGetLastError();
            throw OutOfMemoryError(std::to_string(bytes) +
                                   " bytes do not fit the GPU: choose smaller sizes");
        }
        kernels::cuda::check(cudaMemset(data_, 0, bytes_), "cudaMemset");
        kernels::cuda::check(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
    }
    ~Buffer() { (void)cudaFree(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    [[nodiscard]] std::span<std::byte> bytes() const {
        return {static_cast<std::byte*>(data_), bytes_};
    }
    void upload(const void* from, size_t bytes, size_t offset = 0) const {
        kernels::cuda::check(
            cudaMemcpy(this->bytes().data() + offset, from, bytes, cudaMemcpyHostToDevice),
            "cudaMemcpy");
    }
    void download(void* to, size_t bytes, size_t offset = 0) const {
        kernels::cuda::check(
            cudaMemcpy(to, this->bytes().data() + offset, bytes, cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    }

private:
    void* data_ = nullptr;
    size_t bytes_;
};

class Matrix {
public:
    Matrix(int64_t rows, int64_t cols, DType type)
        : buffer_(rows * cols * size_of(type)), view_(buffer_.bytes().data(), rows, cols, type) {}
    operator Tensor() const { return view_; }
    operator ConstTensor() const { return view_; }
    [[nodiscard]] Tensor view() const { return view_; }
    [[nodiscard]] const Buffer& buffer() const { return buffer_; }

    /// Fills it with normal numbers.
    void fill(uint64_t seed, float deviation) const {
        std::mt19937_64 random(seed);
        std::normal_distribution<float> normal(0, deviation);
        fill_by_blocks(
            view_, [&] { return normal(random); },
            [this](const void* from, size_t bytes, size_t offset) {
                buffer_.upload(from, bytes, offset);
            });
    }

private:
    Buffer buffer_;
    Tensor view_;
};

template <typename T>
class Array {
public:
    explicit Array(const std::vector<T>& values)
        : count_(values.size()), buffer_(static_cast<int64_t>(values.size() * sizeof(T))) {
        buffer_.upload(values.data(), values.size() * sizeof(T));
    }
    operator std::span<const T>() const {
        return {reinterpret_cast<const T*>(buffer_.bytes().data()), count_};
    }

private:
    size_t count_;
    Buffer buffer_;
};

/// Stream, workspace and engine of one rank, as in its lane for passes.
class Gpu {
public:
    Gpu()
        : workspace_(kernels::cuda::kPassWorkspaceBytes),
          engine_(0),
          context_({.poll = {}, .cuda = &engine_}) {
        kernels::cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                             "cudaStreamCreate");
        engine_.use({.stream = stream_, .workspace = workspace_.bytes()});
    }
    ~Gpu() { (void)cudaStreamDestroy(stream_); }
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    [[nodiscard]] Context& context() { return context_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

private:
    Buffer workspace_;
    cudaStream_t stream_ = nullptr;
    kernels::cuda::Engine engine_;
    Context context_;
};

}  // namespace vocabpipe::bench
