// SPDX-License-Identifier: Apache-2.0
// Matrices of the sizes of training, on host and device. Their elements are filled, converted and
// looked through by all cores: matrix.hpp would take minutes for half a billion elements.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/bf16.hpp"
#include "tests/kernels/cuda/device_matrix.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::test {

/// Without a GPU the same tests run at reduced sizes: the stand-in computes every thread in turn.
#ifdef VOCABPIPE_ON_STAND_IN
inline constexpr bool kOnStandIn = true;
#else
inline constexpr bool kOnStandIn = false;
#endif

/// Threads of the references. Not OMP_NUM_THREADS, which is 1 in all tests.
inline int host_threads() {
    return kOnStandIn ? 1 : static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

/// Bits that depend on seed and place alone, so that threads may fill a matrix in any order.
inline uint64_t random_bits(uint64_t seed, uint64_t place) {
    uint64_t bits = (seed + 1) * 0xd6e8feb86659fd93U + place * 0x9e3779b97f4a7c15U;
    for (int round = 0; round < 2; ++round) {
        bits ^= bits >> 32;
        bits *= 0xd6e8feb86659fd93U;
    }
    return bits ^ (bits >> 32);
}
/// Uniform in [-1, 1); 24 bits, so exact in fp32.
inline float random_value(uint64_t seed, uint64_t place) {
    return static_cast<float>(random_bits(seed, place) >> 40) * 0x1p-23F - 1.0F;
}

/// Dense, fp32 or bf16, on the host.
class LargeMatrix {
public:
    /// Elements are whatever the memory holds.
    LargeMatrix(int64_t rows, int64_t cols, DType type)
        : data_(std::make_unique_for_overwrite<std::byte[]>(
              static_cast<size_t>(rows * cols * size_of(type)))),
          view_(data_.get(), rows, cols, type) {}
    /// Uniform in [low, high).
    static LargeMatrix random(int64_t rows, int64_t cols, DType type, uint64_t seed, float low,
                              float high) {
        LargeMatrix result(rows, cols, type);
        const float middle = (low + high) / 2, half = (high - low) / 2;
#pragma omp parallel for num_threads(host_threads())
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t at = row * cols; at < (row + 1) * cols; ++at) {
                result.set_at(at, middle + half * random_value(seed, static_cast<uint64_t>(at)));
            }
        }
        return result;
    }

    [[nodiscard]] Tensor view() {
        return view_;
    }
    [[nodiscard]] ConstTensor view() const {
        return view_;
    }
    [[nodiscard]] int64_t rows() const {
        return view_.rows;
    }
    [[nodiscard]] int64_t cols() const {
        return view_.cols;
    }
    [[nodiscard]] double get(int64_t row, int64_t col) const {
        return at(row * cols() + col);
    }
    void set(int64_t row, int64_t col, double value) {
        set_at(row * cols() + col, static_cast<float>(value));
    }

    /// Columns [first, first + to.size()) of a row.
    void read(int64_t row, int64_t first, std::span<double> to) const {
        const int64_t begin = row * cols() + first;
        const auto count = static_cast<int64_t>(to.size());
        if (view_.dtype == DType::bf16) {
            const Bf16* const from = view_.as<Bf16>() + begin;
            for (int64_t i = 0; i < count; ++i) to[static_cast<size_t>(i)] = to_float(from[i]);
        } else {
            const float* const from = view_.as<float>() + begin;
            for (int64_t i = 0; i < count; ++i) to[static_cast<size_t>(i)] = from[i];
        }
    }
    [[nodiscard]] std::vector<double> row(int64_t row) const {
        std::vector<double> result(static_cast<size_t>(cols()));
        read(row, 0, result);
        return result;
    }
    /// Elements that are NaN or infinite: of an output that was NaN before, those never written.
    [[nodiscard]] int64_t count_not_finite() const {
        int64_t count = 0;
#pragma omp parallel for num_threads(host_threads()) reduction(+ : count)
        for (int64_t row = 0; row < rows(); ++row) {
            for (int64_t i = row * cols(); i < (row + 1) * cols(); ++i) {
                count += std::isfinite(at(i)) ? 0 : 1;
            }
        }
        return count;
    }

private:
    [[nodiscard]] float at(int64_t i) const {
        return view_.dtype == DType::bf16 ? to_float(view_.as<Bf16>()[i]) : view_.as<float>()[i];
    }
    void set_at(int64_t i, float value) {
        if (view_.dtype == DType::bf16) {
            view_.as<Bf16>()[i] = to_bf16(value);
        } else {
            view_.as<float>()[i] = value;
        }
    }

    std::unique_ptr<std::byte[]> data_;
    Tensor view_;
};

/// The same on the device.
class LargeOnDevice {
public:
    LargeOnDevice(const Device& device, const LargeMatrix& from)
        : LargeOnDevice(device, from.rows(), from.cols(), from.view().dtype) {
        device.upload(from.view().data, bytes_.data(), bytes_.size());
    }
    /// Every element is NaN.
    LargeOnDevice(const Device& device, int64_t rows, int64_t cols, DType type)
        : device_(&device),
          bytes_(static_cast<size_t>(rows * cols * size_of(type))),
          view_(bytes_.data(), rows, cols, type) {}

    operator Tensor() const { return view_; }
    operator ConstTensor() const { return view_; }
    [[nodiscard]] Tensor view() const { return view_; }
    /// Once everything launched so far is done.
    [[nodiscard]] LargeMatrix download() const {
        LargeMatrix result(view_.rows, view_.cols, view_.dtype);
        device_->download(bytes_.data(), result.view().data, bytes_.size());
        return result;
    }

private:
    const Device* device_;
    DeviceBytes bytes_;
    Tensor view_;
};

/// One of each of `count` equal parts of [0, total), the first and the last among them: tiles of a
/// product at least that large are all met. Ascending; all if there are fewer.
inline std::vector<int64_t> sample_of_each_part(int64_t total, int64_t count, uint64_t seed) {
    count = std::min(count, total);
    std::vector<int64_t> samples;
    for (int64_t part = 0; part < count; ++part) {
        const int64_t begin = total * part / count, end = total * (part + 1) / count;
        const auto offset = static_cast<int64_t>(random_bits(seed, static_cast<uint64_t>(part)) %
                                                 static_cast<uint64_t>(end - begin));
        samples.push_back(part == 0 ? 0 : part == count - 1 ? total - 1 : begin + offset);
    }
    return samples;
}

}  // namespace vocabpipe::kernels::test
