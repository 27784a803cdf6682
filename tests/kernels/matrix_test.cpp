// SPDX-License-Identifier: Apache-2.0
// What a kernel test says when it fails.
#include "tests/kernels/matrix.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace vocabpipe::kernels::test {
namespace {

class ExpectClose : public testing::Test {
protected:
    Matrix expected = Matrix::random(3, 4, DType::fp32, 1);
    Matrix actual = expected.as(DType::fp32);
    static double bound(int64_t /*row*/, int64_t /*col*/) { return 0.5; }
    /// Element (1, 2) is wrong.
    void miss_by(double error) { actual.set(1, 2, expected.get(1, 2) + error); }
};

TEST_F(ExpectClose, AcceptsErrorsWithinTheirBounds) {
    miss_by(0.49);
    expect_close(actual, expected, bound);
}

TEST_F(ExpectClose, SaysByWhatFactorABoundWasMissed) {
    miss_by(0.525);
    EXPECT_NONFATAL_FAILURE(expect_close(actual, expected, bound),
                            "missed its bound 0.5 by 1.05 times");
    miss_by(500);
    EXPECT_NONFATAL_FAILURE(expect_close(actual, expected, bound),
                            "missed its bound 0.5 by 1e+03 times");
    miss_by(std::numeric_limits<double>::quiet_NaN());
    EXPECT_NONFATAL_FAILURE(expect_close(actual, expected, bound), "by nan times");
}

TEST_F(ExpectClose, OfManyFailuresTellsThreeAndTheLargestFactor) {
    for (int64_t col = 0; col < 4; ++col) actual.set(0, col, expected.get(0, col) + 1);
    miss_by(2);
    testing::TestPartResultArray failures;
    {
        const testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
        expect_close(actual, expected, bound);
    }
    ASSERT_EQ(failures.size(), 4);
    EXPECT_NE(std::string(failures.GetTestPartResult(3).message()).find("at most by 4 times"),
              std::string::npos)
        << failures.GetTestPartResult(3).message();
}

}  // namespace
}  // namespace vocabpipe::kernels::test
