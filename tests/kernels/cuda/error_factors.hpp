// SPDX-License-Identifier: Apache-2.0
// Errors of many elements in units of their bounds: one line for all of them, and one failure.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {

/// Six standard deviations of the error that rounding the terms of a sum to bf16 makes, in units of
/// sqrt(sum of their squares): each term errs by at most a part kEps16 of itself, spread evenly,
/// and independently of the others. The sum of the terms' magnitudes, which cannot be exceeded, is
/// up to sqrt(terms) times larger, and would hide a tile that is missing.
inline constexpr double kRoundedTerms = 6 / 1.7320508075688772 * kEps16;

/// A sum of `terms` products by tensor cores, which add 16 at a time and cut off rather than round:
/// each time 2^-23 of the partial sum at most, all to one side. Partial sums of terms of either
/// sign are about as large as sqrt(sum of the squares of the terms).
inline double accumulation(int64_t terms) {
    return static_cast<double>(terms / 8 + 16) * kEps32;
}

/// Dot product of `terms` products of random numbers in fp32, as a part of the product of the two
/// vectors' lengths: several times what any order of the sum makes of it.
inline double dot_error(int64_t terms) {
    return std::sqrt(static_cast<double>(terms)) * kEps32;
}

/// Inside failures_of(): nothing is printed.
inline bool& looking_for_failures() {
    thread_local bool looking = false;
    return looking;
}

/// The errors of one output of one operator.
class ErrorFactors {
public:
    /// `what`: operator, output and shape.
    explicit ErrorFactors(std::string what) : what_(std::move(what)) {}

    void add(int64_t row, int64_t col, double actual, double expected, double bound) {
        const double error = std::abs(actual - expected);
        const bool within = error <= bound;  // NaN is not
        ++elements_;
        missed_ += within ? 0 : 1;
        const double factor = error == 0 ? 0 : error / bound;
        if (std::isnan(worst_.factor) || factor <= worst_.factor) return;
        worst_ = {factor, row, col, actual, expected, error, bound};
    }
    /// What another thread has added.
    void add(const ErrorFactors& other) {
        elements_ += other.elements_;
        missed_ += other.missed_;
        if (!std::isnan(worst_.factor) && !(other.worst_.factor <= worst_.factor)) {
            worst_ = other.worst_;
        }
    }

    /// One failure, if any element missed its bound.
    void expect_within_bounds() const {
        EXPECT_GT(elements_, 0) << what_;
        if (!looking_for_failures()) {
            std::printf("[ %8.3f ] of its bound is the largest error of %lld elements: %s\n",
                        worst_.factor, static_cast<long long>(elements_), what_.c_str());
        }
        if (missed_ == 0) return;
        ADD_FAILURE() << what_ << ": " << missed_ << " of " << elements_
                      << " elements are wrong, most of all row " << worst_.row << ", column "
                      << worst_.col << ": " << worst_.actual << " instead of " << worst_.expected
                      << ", " << missed_by(worst_.error, worst_.bound);
    }

private:
    struct Element {
        double factor = 0;
        int64_t row = 0, col = 0;
        double actual = 0, expected = 0, error = 0, bound = 0;
    };
    std::string what_;
    int64_t elements_ = 0, missed_ = 0;
    Element worst_;
};

/// What fails in `checks`, which this thread runs, as text; the test itself does not fail.
inline std::string failures_of(const std::function<void()>& checks) {
    testing::TestPartResultArray failures;
    {
        const testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
        looking_for_failures() = true;
        checks();
        looking_for_failures() = false;
    }
    std::string text;
    for (int i = 0; i < failures.size(); ++i) {
        text += failures.GetTestPartResult(i).message();
        text += '\n';
    }
    return text;
}

}  // namespace vocabpipe::kernels::test
