// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

namespace vocabpipe::kernels::host {

/// A part of a product that one primitive computes: rows [row, row + rows) of c, columns likewise.
struct MatmulStrip {
    int64_t row = 0, rows = 0;
    int64_t column = 0, columns = 0;
    /// Size that the primitive computes: larger than the part where too few rows or columns are
    /// left.
    int64_t padded_rows = 0, padded_columns = 0;

    [[nodiscard]] bool is_padded() const {
        return padded_rows != rows || padded_columns != columns;
    }
};

/// Cuts c (m, n) for oneDNN's fp32 kernels without AVX-512, so that an element has the same bits
/// however rows and columns are divided between products.
///
/// Those kernels add up 6 rows by 16 columns with one chain per element, but groups of at most 3
/// rows, or at most 8 columns, with two. They take blocks of 48 or 96 rows, or halves of the rest,
/// and blocks of 4032 columns likewise, so that small groups occur anywhere. More than 263 rows may
/// go to other kernels, which always have one chain, but cut long sums elsewhere. So strips have
/// 240 rows, another multiple of 48, or 16, and the rest is padded to groups that have one chain;
/// columns have blocks of 4032, a multiple of 16, and the padded rest.
[[nodiscard]] std::vector<MatmulStrip> matmul_strips(int64_t m, int64_t n);

}  // namespace vocabpipe::kernels::host
