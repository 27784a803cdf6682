// SPDX-License-Identifier: Apache-2.0
// Bounds of sums, and random matrices with a chosen distance between rows.
#pragma once

#include "tests/kernels/matrix.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::test {

/// A gap of 8 with a multiple of 8 columns keeps all rows aligned for vector accesses; 3 for none.
inline Matrix random_with_gap(int64_t rows, int64_t cols, DType type, int64_t gap, unsigned seed,
                              double low = -1.0, double high = 1.0) {
    const auto values = Matrix::random(rows, cols, type, seed, low, high);
    Matrix result(rows, cols, type, gap);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t col = 0; col < cols; ++col) result.set(row, col, values.get(row, col));
    }
    return result;
}

/// A sum of `terms` fp32 products in any order errs by at most (terms + 2) eps times the sum of
/// magnitudes; the result is then rounded to its type.
inline std::function<double(int64_t, int64_t)> sum_bound(const Matrix& magnitude,
                                                         const Matrix& exact, int64_t terms,
                                                         DType result) {
    return [&magnitude, &exact, terms, result](int64_t row, int64_t col) {
        return static_cast<double>(terms + 2) * kEps32 * magnitude.get(row, col) +
               unit_roundoff(result) * std::abs(exact.get(row, col)) * 1.01;
    };
}

/// Where rows of a bf16 result are no whole vectors, cuBLASLt rounds the product before it adds
/// what else there is: bias, residual (`terms`), each at most 1 (H200, cuBLASLt 13.1). Relative to
/// |result| + 1.
inline double rounded_early(DType result, const ConstTensor& c, int terms) {
    const bool vectors = c.cols % 8 == 0 && c.stride % 8 == 0;
    return result == DType::bf16 && !vectors ? 1.02 * terms * unit_roundoff(result) : 0.0;
}

/// sum_bound() of products to which `c` adds a bias.
inline std::function<double(int64_t, int64_t)> biased_bound(const Matrix& magnitude,
                                                            const Matrix& exact, int64_t terms,
                                                            const ConstTensor& c) {
    return [once = sum_bound(magnitude, exact, terms, c.dtype),
            early = rounded_early(c.dtype, c, 1), &exact](int64_t row, int64_t col) {
        return once(row, col) + early * (1 + std::abs(exact.get(row, col)));
    };
}

}  // namespace vocabpipe::kernels::test
