// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/matmul_strips.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace vocabpipe::kernels::host {
namespace {

TEST(MatmulStrips, CoverEveryElementOnceInGroupsWithOneChain) {
    for (const int64_t m : {1, 3, 4, 7, 16, 37, 48, 63, 240, 263, 301, 1000}) {
        for (const int64_t n : {1, 8, 9, 16, 24, 333, 4032, 8081}) {
            std::vector<int> covered(static_cast<size_t>(m * n), 0);
            for (const MatmulStrip& strip : matmul_strips(m, n)) {
                EXPECT_GE(strip.padded_rows, strip.rows);
                EXPECT_LE(strip.padded_rows, 240);
                const int64_t rows = strip.padded_rows % 48 % 6;
                EXPECT_TRUE(rows == 0 || rows >= 4) << strip.padded_rows << " rows";
                EXPECT_TRUE(strip.padded_rows <= 16 || strip.padded_rows % 48 == 0);
                EXPECT_GE(strip.padded_columns, strip.columns);
                EXPECT_LE(strip.padded_columns, 4032);
                const int64_t columns = strip.padded_columns % 16;
                EXPECT_TRUE(columns == 0 || columns > 8) << strip.padded_columns << " columns";
                for (int64_t row = strip.row; row < strip.row + strip.rows; ++row) {
                    for (int64_t col = 0; col < strip.columns; ++col) {
                        ++covered[static_cast<size_t>(row * n + strip.column + col)];
                    }
                }
            }
            for (const int times : covered) ASSERT_EQ(times, 1) << m << " x " << n;
        }
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::host
