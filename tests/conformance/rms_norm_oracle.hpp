// SPDX-License-Identifier: Apache-2.0
// The errors that an RMSNorm may make against the reference, for the tests of all devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/kernels/matrix.hpp"
#include "vocabpipe/rms_norm_options.hpp"

namespace vocabpipe::kernels::test {

/// Operands of one RMSNorm and the reference's fp64 results; rows of h elements.
/// mean(x^2) has h + 2 roundings and no cancellation, and a square root halves its relative error:
/// that of inverse_rms is below (h + 8) eps, for sums in any order.
struct RmsNormErrors {
    const Matrix& x;
    const Matrix& gamma;
    const RmsNormOptions& options;
    const Matrix& statistics;
    DType type;

    [[nodiscard]] double terms() const { return static_cast<double>(x.cols()); }
    [[nodiscard]] double gain(int64_t col) const {
        return std::abs(gamma.get(0, col) + static_cast<double>(options.weight_offset));
    }
    [[nodiscard]] double z(int64_t row, int64_t col) const {
        return std::abs(x.get(row, col) * statistics.get(row, 0));
    }
    /// The last sum, and the result in the run's type.
    [[nodiscard]] double rounding(double result) const {
        return (2 * kEps32 + unit_roundoff(type) * 1.01) * std::abs(result);
    }

    [[nodiscard]] auto of_statistics() const {
        return [this](int64_t row, int64_t) {
            return (terms() + 8) * kEps32 * statistics.get(row, 0);
        };
    }
    [[nodiscard]] auto of_forward(const Matrix& exact) const {
        return [this, &exact](int64_t row, int64_t col) {
            return (terms() + 12) * kEps32 * gain(col) * z(row, col) +
                   rounding(exact.get(row, col));
        };
    }
    /// inverse_rms is given. g has two roundings; the mean of h products of g and z as many more
    /// as terms.
    [[nodiscard]] auto of_backward_input(const Matrix& dy, const Matrix& exact) const {
        std::vector<double> means(static_cast<size_t>(x.rows()));
        for (int64_t row = 0; row < x.rows(); ++row) {
            for (int64_t i = 0; i < x.cols(); ++i) {
                means[static_cast<size_t>(row)] +=
                    std::abs(dy.get(row, i)) * gain(i) * z(row, i) / terms();
            }
        }
        return [this, &dy, &exact, means = std::move(means)](int64_t row, int64_t col) {
            const double g = std::abs(dy.get(row, col)) * gain(col);
            const double mean = means[static_cast<size_t>(row)];
            return statistics.get(row, 0) * kEps32 * (5 * g + (terms() + 12) * z(row, col) * mean) +
                   rounding(exact.get(row, col));
        };
    }
};

}  // namespace vocabpipe::kernels::test
