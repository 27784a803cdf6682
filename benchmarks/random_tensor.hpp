// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/bf16.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace vocabpipe {

/// A dense tensor that owns its memory, aligned to a cache line, with values from -0.1 to 0.1.
class RandomTensor {
public:
    RandomTensor(int64_t rows, int64_t cols, DType type)
        : bytes_(static_cast<size_t>(rows * cols * size_of(type)) + 64) {
        const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
        view_ = Tensor(bytes_.data() + (64 - address % 64) % 64, rows, cols, type);
        std::minstd_rand random(1);
        std::uniform_real_distribution<float> value(-0.1F, 0.1F);
        for (int64_t i = 0; i < view_.size(); ++i) {
            if (type == DType::bf16) {
                view_.as<kernels::Bf16>()[i] = kernels::to_bf16(value(random));
            } else {
                view_.as<float>()[i] = value(random);
            }
        }
    }
    operator Tensor() const { return view_; }
    operator ConstTensor() const { return view_; }
    [[nodiscard]] int64_t bytes() const { return view_.bytes(); }
    [[nodiscard]] std::span<std::byte> span() const {
        return {view_.as<std::byte>(), static_cast<size_t>(view_.bytes())};
    }

private:
    std::vector<std::byte> bytes_;
    Tensor view_;
};

}  // namespace vocabpipe
