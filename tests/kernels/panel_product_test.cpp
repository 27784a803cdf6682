// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/bf16.hpp"
#include "kernels/host/instruction_set.hpp"
#include "kernels/host/panel_product.hpp"

namespace vocabpipe::kernels::host {
namespace {

/// Rows of `stride` elements, of which the first `cols` are a matrix; the others, and some elements
/// behind the last, are NaN.
template <typename T>
struct Stored {
    Stored(int64_t row_count, int64_t columns, int64_t row_stride, std::mt19937& random)
        : rows(row_count), cols(columns), stride(row_stride) {
        std::normal_distribution<float> normal;
        data.assign(static_cast<size_t>(rows * stride + 64), from_float<T>(kNan));
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < cols; ++col) at(row, col) = from_float<T>(normal(random));
        }
    }
    T& at(int64_t row, int64_t col) { return data[static_cast<size_t>(row * stride + col)]; }
    double get(int64_t row, int64_t col, bool transposed) {
        return transposed ? to_float(at(col, row)) : to_float(at(row, col));
    }
    [[nodiscard]] bool guards_are_intact() const {
        for (size_t i = 0; i < data.size(); ++i) {
            const auto row = static_cast<int64_t>(i) / stride;
            if (row < rows && static_cast<int64_t>(i) % stride < cols) continue;
            if (!std::isnan(to_float(data[i]))) return false;
        }
        return true;
    }
    static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    int64_t rows, cols, stride;
    std::vector<T> data;
};

/// As MatmulShape says, in memory that is NaN before.
void multiply(InstructionSet set, const MatmulShape& s, const void* a, const void* b, void* c,
              const void* bias) {
    const int64_t bytes = panel_product_bytes(set, s);
    constexpr std::align_val_t kAlignment{64};
    auto* const memory =
        static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes + 64), kAlignment));
    std::fill_n(memory, bytes + 64, std::byte{0xff});
    panel_product(set, s, a, b, c, bias, memory);
    EXPECT_TRUE(std::all_of(memory + bytes, memory + bytes + 64,
                            [](std::byte value) { return value == std::byte{0xff}; }));
    ::operator delete(memory, kAlignment);
}

constexpr InstructionSet kSets[] = {InstructionSet::plain, InstructionSet::avx2,
                                    InstructionSet::avx512, InstructionSet::avx512_bf16};
constexpr const char* kSetNames[] = {"plain", "avx2", "avx512", "avx512_bf16"};

class PanelProduct : public testing::TestWithParam<std::tuple<InstructionSet, int>> {
protected:
    void SetUp() override {
        if (set() > cpu_instruction_set()) GTEST_SKIP() << "this CPU has no such instructions";
    }
    static InstructionSet set() { return std::get<0>(GetParam()); }
    /// fp32 with the largest set is computed as with the one before.
    static DType type() { return set() == InstructionSet::avx512_bf16 ? DType::bf16 : DType::fp32; }
    static int seed() { return std::get<1>(GetParam()); }
    int64_t below(int64_t end) {
        return std::uniform_int_distribution<int64_t>(0, end - 1)(random_);
    }

    /// Where plain instructions multiply, which are slow, large shapes have few rows.
    MatmulShape any_shape(DType type, bool plain) {
        MatmulShape s;
        s.m = 1 + below(seed() % 3 == 0 && !(plain && seed() % 4 == 0) ? 600 : 30);
        s.n = 1 + below(120);
        // One block of terms, several, or several groups of blocks.
        s.k = 1 + below(seed() % 8 == 0 ? 14000 : seed() % 4 == 0 ? 2500 : 100);
        s.ab_type = type;
        s.transpose_a = below(2) == 1;
        s.transpose_b = below(2) == 1;
        s.accumulate = below(2) == 1;
        s.has_bias = !s.accumulate && below(2) == 1;
        const bool may_be_narrow = type == DType::bf16;
        s.c_type = may_be_narrow && !s.accumulate && below(2) == 1 ? DType::bf16 : DType::fp32;
        s.bias_type = may_be_narrow && below(2) == 1 ? DType::bf16 : DType::fp32;
        s.a_stride = s.stored_a().cols + below(3);
        s.b_stride = s.stored_b().cols + below(3);
        s.c_stride = s.n + below(3);
        return s;
    }

    /// Compares with loops in fp64, and with products of single rows, columns and some of each.
    template <typename T, typename C, typename Bias>
    void check(const MatmulShape& s) {
        Stored<T> a(s.stored_a().rows, s.stored_a().cols, s.a_stride, random_);
        Stored<T> b(s.stored_b().rows, s.stored_b().cols, s.b_stride, random_);
        Stored<Bias> bias(1, s.n, s.n, random_);
        Stored<C> c(s.m, s.n, s.c_stride, random_);
        const Stored<C> before = c;
        multiply(set(), s, a.data.data(), b.data.data(), c.data.data(), bias.data.data());
        EXPECT_TRUE(c.guards_are_intact());

        Stored<C> expected = before;
        constexpr double kEps = 0x1p-24;
        for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = 0; j < s.n; ++j) {
                double sum = s.has_bias ? to_float(bias.at(0, j)) : 0;
                if (s.accumulate) sum = to_float(expected.at(i, j));
                double magnitude = std::abs(sum);
                for (int64_t k = 0; k < s.k; ++k) {
                    const double product = a.get(i, k, s.transpose_a) * b.get(k, j, s.transpose_b);
                    sum += product;
                    magnitude += std::abs(product);
                }
                const double unit = s.c_type == DType::bf16 ? 0x1p-8 : kEps;
                ASSERT_NEAR(
                    to_float(c.at(i, j)), sum,
                    static_cast<double>(s.k + 2) * kEps * magnitude + unit * std::abs(sum) * 1.01)
                    << i << ", " << j;
            }
        }

        Stored<C> cut = before;
        for (int64_t top = 0; top < s.m;) {
            const int64_t rows = std::min(1 + below(20), s.m - top);
            for (int64_t left = 0; left < s.n;) {
                const int64_t columns = std::min(1 + below(60), s.n - left);
                MatmulShape part = s;
                part.m = rows;
                part.n = columns;
                multiply(set(), part, s.transpose_a ? &a.at(0, top) : &a.at(top, 0),
                         s.transpose_b ? &b.at(left, 0) : &b.at(0, left), &cut.at(top, left),
                         &bias.at(0, left));
                left += columns;
            }
            top += rows;
        }
        for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = 0; j < s.n; ++j) {
                ASSERT_EQ(std::bit_cast<uint32_t>(to_float(cut.at(i, j))),
                          std::bit_cast<uint32_t>(to_float(c.at(i, j))))
                    << i << ", " << j;
            }
        }
    }

    std::mt19937 random_{static_cast<uint32_t>(seed())};
};

TEST_P(PanelProduct, AgreesWithLoopsInFp64AndItsBitsDoNotDependOnTheCut) {
    for (int round = 0; round < 10; ++round) {
        const MatmulShape s = any_shape(type(), set() == InstructionSet::plain);
        SCOPED_TRACE(testing::Message() << s.m << " x " << s.n << " x " << s.k << " transposed "
                                        << s.transpose_a << s.transpose_b);
        const bool wide = s.c_type == DType::fp32, wide_bias = s.bias_type == DType::fp32;
        if (s.ab_type == DType::fp32) check<float, float, float>(s);
        if (s.ab_type == DType::fp32) continue;
        if (wide && wide_bias) check<Bf16, float, float>(s);
        if (wide && !wide_bias) check<Bf16, float, Bf16>(s);
        if (!wide && wide_bias) check<Bf16, Bf16, float>(s);
        if (!wide && !wide_bias) check<Bf16, Bf16, Bf16>(s);
        if (HasFatalFailure()) return;
    }
}

TEST_P(PanelProduct, HasTheBitsOfPlainInstructionsInFp32) {
    if (set() == InstructionSet::plain || set() == InstructionSet::avx512_bf16) {
        GTEST_SKIP() << "the same code as of plain or AVX-512";
    }
    for (int round = 0; round < 4; ++round) {
        const MatmulShape s = any_shape(DType::fp32, true);
        Stored<float> a(s.stored_a().rows, s.stored_a().cols, s.a_stride, random_);
        Stored<float> b(s.stored_b().rows, s.stored_b().cols, s.b_stride, random_);
        Stored<float> bias(1, s.n, s.n, random_);
        Stored<float> c(s.m, s.n, s.c_stride, random_);
        // Sums that are subnormal, infinite or not a number.
        for (int i = 0; i < 3; ++i) {
            const float small[] = {1e-30F, 1e-38F, 3e-20F}, large[] = {1e30F, 3e38F, -1e25F};
            a.at(below(a.rows), below(a.cols)) = seed() % 2 == 0 ? small[i] : large[i];
            b.at(below(b.rows), below(b.cols)) = seed() % 3 == 0 ? small[i] : large[i];
        }
        if (seed() % 8 == 5) {
            for (float& value : a.data) value *= 1e-20F;
            for (float& value : b.data) value *= 1e-20F;
            for (float& value : c.data) value *= 1e-40F;
        }
        Stored<float> plain = c;
        multiply(set(), s, a.data.data(), b.data.data(), c.data.data(), bias.data.data());
        multiply(InstructionSet::plain, s, a.data.data(), b.data.data(), plain.data.data(),
                 bias.data.data());
        for (int64_t i = 0; i < s.m; ++i) {
            for (int64_t j = 0; j < s.n; ++j) {
                if (std::isnan(plain.at(i, j)) && std::isnan(c.at(i, j))) continue;
                ASSERT_EQ(std::bit_cast<uint32_t>(plain.at(i, j)),
                          std::bit_cast<uint32_t>(c.at(i, j)))
                    << i << ", " << j;
            }
        }
    }
}

/// fp64 rounds these sums to the middle between two floats.
TEST_P(PanelProduct, RoundsAFusedMultiplyAddOnceInFp32) {
    constexpr float kX = 0x1p-11F, kScale = 0x1p-12F, kNext = 1 + 0x1p-23F;
    // (1 + x)(1 - x + x^2) = 1 + x^3 and (1 - x)(1 + x + x^2) = 1 - x^3
    const float a[3][2] = {
        {1, kScale * (1 + kX)}, {-1, -kScale * (1 + kX)}, {kNext, kScale * (1 - kX)}};
    const float b[2][2] = {{1, 1}, {kScale * (1 - kX + kX * kX), kScale * (1 + kX + kX * kX)}};
    float c[3][2];
    multiply(set(), {.m = 3, .n = 2, .k = 2, .a_stride = 2, .b_stride = 2, .c_stride = 2}, a, b, c,
             nullptr);
    EXPECT_EQ(c[0][0], kNext);  // 1 + 2^-24 (1 + 2^-33)
    EXPECT_EQ(c[1][0], -kNext);
    EXPECT_EQ(c[2][1], kNext);  // 1 + 2^-23 + 2^-24 (1 - 2^-33)
}

std::string name_of_case(const testing::TestParamInfo<std::tuple<InstructionSet, int>>& info) {
    const auto& [set, seed] = info.param;
    return std::string(kSetNames[static_cast<int>(set)]) + "_" + std::to_string(seed);
}
INSTANTIATE_TEST_SUITE_P(SetsAndSeeds, PanelProduct,
                         testing::Combine(testing::ValuesIn(kSets), testing::Range(0, 24)),
                         name_of_case);

}  // namespace
}  // namespace vocabpipe::kernels::host
