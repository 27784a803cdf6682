// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/modules.hpp"
#include "vocabpipe/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace vocabpipe {

/// The memory of a dense tensor.
template <typename Byte, typename Pointer>
[[nodiscard]] std::span<Byte> bytes_of(const BasicTensor<Pointer>& dense) {
    return {static_cast<Byte*>(dense.data), static_cast<size_t>(dense.bytes())};
}

/// Cuts a range of bytes into tensors, one after the other. With null memory it only counts, so
/// that sizes and layouts come from the same code.
class Views {
public:
    Views() = default;
    explicit Views(Bytes bytes) : memory_(bytes.data()) {}
    /// Only counts, with tensors aligned to `alignment` bytes.
    explicit Views(int64_t alignment) : alignment_(alignment) {}

    void place(Bytes bytes) { memory_ = bytes.data(); }

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
    [[nodiscard]] int64_t aligned(int64_t bytes) const {
        return (bytes + alignment_ - 1) / alignment_ * alignment_;
    }
    std::byte* memory_ = nullptr;
    int64_t used_ = 0;
    int64_t alignment_ = 64;  // a cache line
};

}  // namespace vocabpipe
