// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <tuple>
#include <vector>

#include "kernels/host/gemm.hpp"
#include "kernels/host/operators.hpp"
#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

class LinearOfType : public testing::TestWithParam<std::tuple<DType, DType>> {
protected:
    DType in_type() const { return std::get<0>(GetParam()); }
    DType out_type() const { return std::get<1>(GetParam()); }
    Context ctx{{.threads = 1, .poll = {}}};
};

// The vocabulary layer's exact tests stand on this.
TEST_P(LinearOfType, RowShardsOfTheWeightGiveTheBitsOfTheWhole) {
    const int64_t n = 37, in = 130, out = 301;
    const auto x = Matrix::random(n, in, in_type(), 1);
    const auto w = Matrix::random(out, in, in_type(), 2);
    Matrix whole(n, out, out_type()), parts(n, out, out_type());
    host::linear_forward(ctx, x, w, {}, whole);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{0, 150, 301}, {0, 2, 101, 290, 301}, {0, 64, 128, 301}}) {
        for (size_t part = 0; part + 1 < cuts.size(); ++part) {
            const int64_t begin = cuts[part], count = cuts[part + 1] - begin;
            Matrix own(n, count, out_type());
            host::linear_forward(ctx, x, w.view().row_range(begin, count), {}, own);
            host::linear_forward(ctx, x, w.view().row_range(begin, count), {},
                                 parts.view().column_range(begin, count));
            const Tensor expected = whole.view().column_range(begin, count);
            for (int64_t row = 0; row < n; ++row) {
                ASSERT_EQ(0, std::memcmp(own.view().row_range(row, 1).data,
                                         expected.row_range(row, 1).data,
                                         static_cast<size_t>(count * size_of(out_type()))));
            }
        }
        EXPECT_TRUE(parts.same_bits(whole));
    }
}

TEST_P(LinearOfType, HalfABatchGivesTheBitsOfTheWholeBatch) {
    const int64_t n = 50, in = 130, out = 101;
    const auto x = Matrix::random(n, in, in_type(), 1);
    const auto w = Matrix::random(out, in, in_type(), 2);
    Matrix whole(n, out, out_type()), halves(n, out, out_type());
    host::linear_forward(ctx, x, w, {}, whole);
    for (const int64_t begin : {0, 25}) {
        host::linear_forward(ctx, x.view().row_range(begin, 25), w, {},
                             halves.view().row_range(begin, 25));
    }
    EXPECT_TRUE(halves.same_bits(whole));
}

INSTANTIATE_TEST_SUITE_P(Types, LinearOfType,
                         testing::Combine(testing::Values(DType::fp32, DType::bf16),
                                          testing::Values(DType::fp32, DType::bf16)),
                         [](const auto& info) {
                             return std::string(name_of(std::get<0>(info.param))) + "_to_" +
                                    name_of(std::get<1>(info.param));
                         });

TEST(Gemm, MultipliesEveryCombinationOfTransposes) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t m = 19, n = 35, k = 70;
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const bool transpose_a : {false, true}) {
            for (const bool transpose_b : {false, true}) {
                const auto a = Matrix::random(transpose_a ? k : m, transpose_a ? m : k, type, 1);
                const auto b = Matrix::random(transpose_b ? n : k, transpose_b ? k : n, type, 2);
                Matrix c(m, n, DType::fp32), exact(m, n, DType::fp64);
                for (int64_t row = 0; row < m; ++row) {
                    for (int64_t col = 0; col < n; ++col) {
                        double sum = 0;
                        for (int64_t i = 0; i < k; ++i) {
                            sum += (transpose_a ? a.get(i, row) : a.get(row, i)) *
                                   (transpose_b ? b.get(col, i) : b.get(i, col));
                        }
                        exact.set(row, col, sum);
                    }
                }
                host::gemm(ctx, a, transpose_a, b, transpose_b, c, false);
                // magnitudes: at most k products of values below 1
                expect_close(c, exact, [](int64_t, int64_t) { return (k + 2) * kEps32 * k; });
            }
        }
    }
}

TEST(Gemm, OfASingleRowOrTermReadsAColumnThatIsDenseOrPartOfAMatrix) {
    Context ctx({.threads = 1, .poll = {}});
    const int64_t size = 40, k = 30;
    const auto values = Matrix::random(1, 4 * size, DType::fp32, 1);
    const auto other = Matrix::random(k, size, DType::fp32, 2);
    const auto* const data = values.view().as<float>();
    for (const int64_t stride : {1, 4}) {
        const auto column = [&](int64_t rows) {
            return ConstTensor(data, rows, stride, DType::fp32).column_range(0, 1);
        };
        Matrix row(1, size, DType::fp32), outer(size, size, DType::fp32);
        host::gemm(ctx, column(k), true, other, false, row, false);
        host::gemm(ctx, column(size), false, column(size), true, outer, false);
        for (int64_t i = 0; i < size; ++i) {
            double sum = 0;
            for (int64_t term = 0; term < k; ++term) {
                sum += values.get(0, term * stride) * other.get(term, i);
            }
            EXPECT_NEAR(row.get(0, i), sum, (k + 2) * kEps32 * k);
            for (int64_t j = 0; j < size; ++j) {
                EXPECT_EQ(outer.get(i, j), data[i * stride] * data[j * stride]);
            }
        }
    }
}

TEST(Gemm, SumsLongProductsInChunksAndPollsBetweenParts) {
    int polls = 0;
    Context ctx({.threads = 1, .poll = [&] { ++polls; }});
    const int64_t m = 2, n = 3, k = 20000;
    const auto a = Matrix::random(m, k, DType::fp32, 1);
    const auto b = Matrix::random(k, n, DType::fp32, 2);
    Matrix c(m, n, DType::fp32), exact(m, n, DType::fp64);
    for (int64_t row = 0; row < m; ++row) {
        for (int64_t col = 0; col < n; ++col) {
            double sum = 0;
            for (int64_t i = 0; i < k; ++i) sum += a.get(row, i) * b.get(i, col);
            exact.set(row, col, sum);
        }
    }
    host::gemm(ctx, a, false, b, false, c, false);
    EXPECT_EQ(polls, 2);  // three chunks of at most 8192
    expect_close(c, exact, [](int64_t, int64_t) { return k * kEps32 * k; });
}

// Where a library cuts the sum between threads, or picks a kernel by the size of a shard, or by
// whether its rows are apart.
TEST(Gemm, BitsDependNeitherOnThreadsNorOnShardsInAwkwardShapes) {
    struct Shape {
        int64_t m, n, k;
        bool transpose_a, transpose_b;
        DType type;
    };
    for (const auto& [m, n, k, transpose_a, transpose_b, type] :
         {Shape{1, 48, 130, false, false, DType::bf16},
          {33, 1, 4096, true, false, DType::bf16},
          {16, 2, 8192, false, false, DType::bf16},
          {33, 65, 4096, false, true, DType::bf16},
          {1, 768, 1000, true, false, DType::fp32},
          {33, 768, 1000, false, true, DType::fp32},
          {100, 128, 1000, false, true, DType::fp32},
          {256, 300, 1024, false, true, DType::fp32},
          {188, 301, 524, false, false, DType::fp32},
          {300, 374, 641, true, false, DType::fp32},
          {162, 2936, 542, true, true, DType::fp32},
          {64, 48, 8192, true, true, DType::bf16},
          {5, 40, 8192, false, true, DType::fp32},
          {130, 70, 1201, true, true, DType::fp32}}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
        Matrix a(transpose_a ? k : m, transpose_a ? m : k, type, 0);
        Matrix b(transpose_b ? n : k, transpose_b ? k : n, type, 0);
        a.fill(1);
        b.fill(2);
        Matrix on_one(m, n, DType::fp32, 0);
        Context one({.threads = 1, .poll = {}});
        host::gemm(one, a, transpose_a, b, transpose_b, on_one, false);
        for (const int threads : {2, 3}) {
            Context several({.threads = threads, .poll = {}});
            Matrix result(m, n, DType::fp32, 0);
            host::gemm(several, a, transpose_a, b, transpose_b, result, false);
            EXPECT_TRUE(result.same_bits(on_one)) << threads << " threads";
        }
        if (n < 4) continue;  // no shard is one column wide
        Matrix shards(m, n, DType::fp32);
        for (const int64_t begin : {int64_t{0}, n / 2}) {
            const int64_t count = begin == 0 ? n / 2 : n - n / 2;
            const auto part = transpose_b ? b.view().row_range(begin, count)
                                          : b.view().column_range(begin, count);
            host::gemm(one, a, transpose_a, part, transpose_b,
                       shards.view().column_range(begin, count), false);
        }
        EXPECT_TRUE(m == 1 || shards.same_bits(on_one));
    }
}

// Generation: matrix products would pick another kernel for a share of another width.
TEST(Gemm, OfASingleRowHasTheSameBitsForAllThreadsAndShards) {
    constexpr int64_t kOut = 3072;
    for (const DType type : {DType::fp32, DType::bf16}) {
        for (const int64_t k : {7, 768, 1000, 4099}) {
            const auto x = Matrix::random(1, k, type, 1), w = Matrix::random(kOut, k, type, 2);
            const auto bias = Matrix::random(1, kOut, type, 3);
            Matrix whole(1, kOut, type), parts(1, kOut, type);
            Context pair({.threads = 2, .poll = {}}), alone({.threads = 1, .poll = {}});
            host::linear_forward(pair, x, w, bias, whole);
            for (const auto& [first, rows] : {std::pair{0, 1}, {1, 1022}, {1023, 2049}}) {
                host::linear_forward(alone, x, w.view().row_range(first, rows),
                                     bias.view().column_range(first, rows),
                                     parts.view().column_range(first, rows));
            }
            EXPECT_TRUE(whole.same_bits(parts)) << k;
        }
    }
}

TEST(Gemm, CutIntoPartsGivesTheBitsOfOneProduct) {
    int polls = 0;
    Context ctx({.threads = 1, .poll = [&] { ++polls; }});
    const int64_t m = 300, n = 3000, k = 1200;  // 2.2e9 operations: two parts
    const auto a = Matrix::random(m, k, DType::fp32, 1);
    const auto b = Matrix::random(n, k, DType::fp32, 2);
    Matrix c(m, n, DType::fp32), by_hand(m, n, DType::fp32);
    host::gemm(ctx, a, false, b, true, c, false);
    EXPECT_GE(polls, 1);
    for (const int64_t begin : {0, 1000, 2000}) {
        host::gemm(ctx, a, false, b.view().row_range(begin, 1000), true,
                   by_hand.view().column_range(begin, 1000), false);
    }
    EXPECT_TRUE(c.same_bits(by_hand));
}

TEST(Gemm, RunsOnSeveralRanksOfOneProcessAtTheSameTime) {
    const auto a = Matrix::random(70, 90, DType::bf16, 1);
    const auto b = Matrix::random(50, 90, DType::bf16, 2);
    std::vector<Matrix> results(4, Matrix(70, 50, DType::fp32));
    std::vector<std::thread> ranks;
    for (Matrix& result : results) {
        ranks.emplace_back([&] {
            Context ctx({.threads = 1, .poll = {}});
            for (int i = 0; i < 50; ++i) host::gemm(ctx, a, false, b, true, result, i > 0);
        });
    }
    for (auto& rank : ranks) rank.join();
    for (const Matrix& result : results) EXPECT_TRUE(result.same_bits(results[0]));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
