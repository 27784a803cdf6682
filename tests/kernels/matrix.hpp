// SPDX-License-Identifier: Apache-2.0
// What the kernel tests share: owned matrices with gaps between the rows, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iomanip>
#include <limits>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/reference/elements.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/tensor.hpp"

namespace vocabpipe::kernels::test {

inline constexpr double kEps32 = 0x1p-24;  ///< unit roundoff of fp32
inline constexpr double kEps16 = 0x1p-8;   ///< unit roundoff of bf16

inline double unit_roundoff(DType type) {
    return type == DType::bf16 ? kEps16 : type == DType::fp32 ? kEps32 : 0x1p-53;
}
inline const char* name_of(DType type) {
    return type == DType::bf16 ? "bf16" : type == DType::fp32 ? "fp32" : "fp64";
}

/// An owned matrix, poisoned with NaN, whose rows are `gap` elements apart.
class Matrix {
public:
    Matrix(int64_t rows, int64_t cols, DType type, int64_t gap = 3)
        : rows_(rows), cols_(cols), stride_(cols + gap), type_(type) {
        storage_.resize(static_cast<size_t>(rows * stride_) + 1);
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t col = 0; col < stride_; ++col) reference::set(whole(), row, col, kPoison);
        }
    }
    static Matrix random(int64_t rows, int64_t cols, DType type, unsigned seed, double low = -1.0,
                         double high = 1.0) {
        Matrix result(rows, cols, type);
        result.fill(seed, low, high);
        return result;
    }
    void fill(unsigned seed, double low = -1.0, double high = 1.0) {
        std::mt19937 engine(seed);
        std::uniform_real_distribution<double> value(low, high);
        for (int64_t row = 0; row < rows_; ++row) {
            for (int64_t col = 0; col < cols_; ++col) set(row, col, value(engine));
        }
    }

    operator Tensor() { return {storage_.data(), rows_, cols_, stride_, type_}; }
    operator ConstTensor() const { return {storage_.data(), rows_, cols_, stride_, type_}; }
    [[nodiscard]] Tensor view() { return *this; }
    [[nodiscard]] ConstTensor view() const { return *this; }
    [[nodiscard]] int64_t rows() const { return rows_; }
    [[nodiscard]] int64_t cols() const { return cols_; }
    [[nodiscard]] DType type() const { return type_; }
    [[nodiscard]] double get(int64_t row, int64_t col) const {
        return reference::get(*this, row, col);
    }
    void set(int64_t row, int64_t col, double value) { reference::set(*this, row, col, value); }

    /// The same elements, or their absolute values, in another type.
    [[nodiscard]] Matrix mapped(DType type, const std::function<double(double)>& map) const {
        Matrix result(rows_, cols_, type);
        for (int64_t row = 0; row < rows_; ++row) {
            for (int64_t col = 0; col < cols_; ++col) result.set(row, col, map(get(row, col)));
        }
        return result;
    }
    [[nodiscard]] Matrix as(DType type) const {
        return mapped(type, [](double x) { return x; });
    }
    [[nodiscard]] Matrix magnitude() const {
        return mapped(DType::fp64, [](double x) { return std::abs(x); });
    }
    /// Nothing was written between the rows.
    [[nodiscard]] bool gaps_are_intact() const {
        const ConstTensor all(storage_.data(), rows_, stride_, stride_, type_);
        for (int64_t row = 0; row < rows_; ++row) {
            for (int64_t col = cols_; col < stride_; ++col) {
                if (!std::isnan(reference::get(all, row, col))) return false;
            }
        }
        return true;
    }
    [[nodiscard]] bool same_bits(const Matrix& other) const {
        const auto bytes = static_cast<size_t>(cols_ * size_of(type_));
        for (int64_t row = 0; row < rows_; ++row) {
            if (std::memcmp(view().row_range(row, 1).data, other.view().row_range(row, 1).data,
                            bytes) != 0) {
                return false;
            }
        }
        return true;
    }

private:
    static constexpr double kPoison = std::numeric_limits<double>::quiet_NaN();
    [[nodiscard]] Tensor whole() { return {storage_.data(), rows_, stride_, stride_, type_}; }

    int64_t rows_, cols_, stride_;
    DType type_;
    std::vector<double> storage_;  // enough for any type, and aligned for it
};

/// How far an error is over its bound: 1.05 times is a bound that is too narrow, 1000 times a wrong
/// result.
inline std::string missed_by(double error, double bound) {
    std::ostringstream text;
    text << "error " << error << " missed its bound " << bound << " by " << std::setprecision(3)
         << error / bound << " times";
    return text.str();
}

/// |actual - expected| <= bound(row, col) everywhere; NaN fails. The first few failures are told,
/// and by what factor a bound was missed at most.
inline void expect_close(const Matrix& actual, const Matrix& expected,
                         const std::function<double(int64_t, int64_t)>& bound) {
    constexpr int kTold = 3;
    int failures = 0;
    double largest = 0;
    for (int64_t row = 0; row < actual.rows(); ++row) {
        for (int64_t col = 0; col < actual.cols(); ++col) {
            const double error = std::abs(actual.get(row, col) - expected.get(row, col));
            const double limit = bound(row, col);
            if (error <= limit) continue;
            const double factor = error / limit;
            if (!std::isnan(largest) && !(factor <= largest)) largest = factor;
            if (++failures > kTold) continue;
            ADD_FAILURE() << "at (" << row << ", " << col << "): " << actual.get(row, col)
                          << " instead of " << expected.get(row, col) << ", "
                          << missed_by(error, limit);
        }
    }
    EXPECT_LE(failures, kTold) << "elements that missed their bounds, at most by "
                               << std::setprecision(3) << largest << " times";
    EXPECT_TRUE(actual.gaps_are_intact()) << "written between the rows";
}

/// d loss / d input by central differences, step 1e-5: error about 1e-10 for values near 1.
inline Matrix numeric_gradient(Matrix& input, const std::function<double()>& loss) {
    constexpr double kStep = 1e-5;
    Matrix result(input.rows(), input.cols(), DType::fp64);
    for (int64_t row = 0; row < input.rows(); ++row) {
        for (int64_t col = 0; col < input.cols(); ++col) {
            const double value = input.get(row, col);
            input.set(row, col, value + kStep);
            const double above = loss();
            input.set(row, col, value - kStep);
            const double below = loss();
            input.set(row, col, value);
            result.set(row, col, (above - below) / (2 * kStep));
        }
    }
    return result;
}

/// sum of a * b: turns an operator's output into a loss with the gradient b.
inline double dot(const Matrix& a, const Matrix& b) {
    double sum = 0.0;
    for (int64_t row = 0; row < a.rows(); ++row) {
        for (int64_t col = 0; col < a.cols(); ++col) sum += a.get(row, col) * b.get(row, col);
    }
    return sum;
}

inline constexpr double kDifferenceBound = 1e-7;

}  // namespace vocabpipe::kernels::test
