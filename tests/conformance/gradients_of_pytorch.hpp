// SPDX-License-Identifier: Apache-2.0
// What the tests of losses of tokens share: their values and gradients against PyTorch's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/conformance/vocabulary_oracle.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {

/// The first `rows` * `cols` of `values`, row by row.
inline Matrix matrix(const std::vector<double>& values, int64_t rows, int64_t cols, DType type) {
    Matrix made(rows, cols, type);
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < cols; ++j) {
            made.set(i, j, values[static_cast<size_t>(i * cols + j)]);
        }
    }
    return made;
}

/// The layer of which PyTorch's numbers are.
template <typename Inputs>
[[nodiscard]] Problem problem_of(const Inputs& in, const LossOptions& options, DType type) {
    return {matrix(in.x, in.tokens(), in.hidden(), type),
            matrix(in.w, in.vocab(), in.hidden(), type),
            in.labels,
            {in.g.begin(), in.g.end()},
            options};
}

/// Expects of run(inputs, values, shard_rows, type), which returns a Result, each of
/// PyTorch's `values`, on one shard and on three, one of them empty. Token 4 is ignored.
template <typename Inputs, typename Values, typename Run>
void expect_gradients_of_pytorch(const Inputs& in, const std::vector<Values>& values,
                                 const Run& run) {
    for (size_t i = 0; i < values.size(); ++i) {
        const Values& expected = values[i];
        for (const std::vector<int64_t>& rows :
             {std::vector<int64_t>{13}, std::vector<int64_t>{5, 0, 8}}) {
            SCOPED_TRACE("case " + std::to_string(i) + ", " + std::to_string(rows.size()) +
                         " shards");
            const Result found = run(in, expected, rows, DType::fp32);
            for (size_t n = 0; n < expected.loss.size(); ++n) {
                EXPECT_NEAR(found.loss[n], expected.loss[n],
                            64 * kEps32 * (1 + std::abs(expected.loss[n])));
            }
            EXPECT_EQ(found.loss[4], 0) << "ignored";
            const Matrix dx = matrix(expected.dx, in.tokens(), in.hidden(), DType::fp64);
            const Matrix dw = matrix(expected.dw, in.vocab(), in.hidden(), DType::fp64);
            EXPECT_LT(relative_error(found.dx, dx), 2e-6);
            EXPECT_LT(relative_error(found.dw, dw), 2e-6);
            // bf16 holds these x and w only nearly: its own rounding is 2^-9 of each.
            const Result narrow = run(in, expected, rows, DType::bf16);
            EXPECT_LT(relative_error(narrow.dx, dx), 2e-2);
            EXPECT_LT(relative_error(narrow.dw, dw), 2e-2);
        }
    }
}

}  // namespace vocabpipe::kernels::test
