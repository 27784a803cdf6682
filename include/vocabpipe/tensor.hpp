// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace vocabpipe {

/// fp64 exists for the reference kernels, the oracle of the tests; nothing trains in it.
enum class DType : uint8_t { fp32, bf16, fp64 };

[[nodiscard]] constexpr int64_t size_of(DType type) {
    return type == DType::bf16 ? 2 : type == DType::fp32 ? 4 : 8;
}

/// A view of a row-major matrix (rows, cols) whose rows are `stride` elements apart. Vectors are
/// one row. Owns nothing; an empty view (data == nullptr) stands for "none".
template <typename Pointer>
struct BasicTensor {
    Pointer data = nullptr;     ///< first element; null: empty
    int64_t rows = 0;           ///< rows
    int64_t cols = 0;           ///< columns
    int64_t stride = 0;         ///< elements between rows, >= cols
    DType dtype = DType::fp32;  ///< of the elements

    BasicTensor() = default;
    /// Dense.
    BasicTensor(Pointer data_, int64_t rows_, int64_t cols_, DType dtype_)
        : data(data_), rows(rows_), cols(cols_), stride(cols_), dtype(dtype_) {}
    /// Rows `stride_` elements apart.
    BasicTensor(Pointer data_, int64_t rows_, int64_t cols_, int64_t stride_, DType dtype_)
        : data(data_), rows(rows_), cols(cols_), stride(stride_), dtype(dtype_) {}
    /// A mutable view converts to a const one. (A template, because nvcc warns of a conversion to
    /// the class itself.)
    template <typename Other>
    requires(std::is_same_v<Other, const void*> && !std::is_same_v<Other, Pointer>)
    operator BasicTensor<Other>() const {
        return {data, rows, cols, stride, dtype};
    }

    /// Not empty.
    [[nodiscard]] explicit operator bool() const { return data != nullptr; }
    /// Elements.
    [[nodiscard]] int64_t size() const { return rows * cols; }
    /// Bytes of a dense matrix of this shape.
    [[nodiscard]] int64_t bytes() const { return size() * size_of(dtype); }
    template <typename T>
    /// The first element as a T*, or const T* for a const view; T must match dtype.
    [[nodiscard]] auto* as() const {
        if constexpr (std::is_same_v<Pointer, const void*>) {
            return static_cast<const T*>(data);
        } else {
            return static_cast<T*>(data);
        }
    }
    /// Rows [begin, begin + count).
    [[nodiscard]] BasicTensor row_range(int64_t begin, int64_t count) const {
        BasicTensor part = *this;
        part.data = offset(begin * stride);
        part.rows = count;
        return part;
    }
    /// Columns [begin, begin + count).
    [[nodiscard]] BasicTensor column_range(int64_t begin, int64_t count) const {
        BasicTensor part = *this;
        part.data = offset(begin);
        part.cols = count;
        return part;
    }

private:
    [[nodiscard]] Pointer offset(int64_t elements) const {
        using Byte = decltype(as<char>());
        return static_cast<Byte>(data) + elements * size_of(dtype);
    }
};

using Tensor = BasicTensor<void*>;
using ConstTensor = BasicTensor<const void*>;

}  // namespace vocabpipe
