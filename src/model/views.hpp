// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstdint>

namespace vocabpipe {

/// Cuts a range of bytes into tensors, one after the other. With null memory it only counts, so
/// that sizes and layouts come from the same code.
class Views {
public:
    Views() = default;
    explicit Views(Bytes bytes) : memory_(bytes.data()) {}

    Tensor take(int64_t rows, int64_t cols, DType dtype) {
        const Tensor view(memory_ == nullptr ? nullptr : memory_ + used_, rows, cols, dtype);
        used_ += aligned(view.bytes());
        return view;
    }
    Bytes take_bytes(int64_t bytes) {
        const Bytes view =
            memory_ == nullptr ? Bytes{} : Bytes(memory_ + used_, static_cast<size_t>(bytes));
        used_ += aligned(bytes);
        return view;
    }
    [[nodiscard]] int64_t used() const { return used_; }

private:
    static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
    std::byte* memory_ = nullptr;
    int64_t used_ = 0;
};

}  // namespace vocabpipe
