// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/operators.hpp"

#include <gtest/gtest.h>

#include "tests/kernels/matrix.hpp"

namespace vocabpipe::kernels::test {
namespace {

/// y = x, whatever the factor.
void forget_factor(Context& ctx, ConstTensor x, float /*factor*/, Tensor y) {
    ctx.operators().convert(ctx, x, y);
}

TEST(Operators, CanBeReplacedInACopyOfTheTable) {
    Operators mine = host::operators();
    mine.scale = forget_factor;
    Context ctx({.poll = {}, .operators = &mine});
    const Matrix x = Matrix::random(3, 5, DType::fp32, 1);
    Matrix y(3, 5, DType::fp32);
    ctx.operators().scale(ctx, x, 2, y);
    EXPECT_EQ(y.get(2, 4), x.get(2, 4));
    ctx.operators().add(ctx, x, x, y);
    EXPECT_EQ(y.get(2, 4), 2 * x.get(2, 4));
}

}  // namespace
}  // namespace vocabpipe::kernels::test
