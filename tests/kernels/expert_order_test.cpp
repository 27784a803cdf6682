// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "kernels/host/operators.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

// Only the host looks at what is chosen.
TEST(ExpertOrder, RefusesExpertsThatDoNotExist) {
    Context ctx({.poll = {}});
    std::vector<int32_t> begin(3), rows(3), slots(3);
    for (const std::vector<int32_t>& choice : {std::vector<int32_t>{0, 1, 2}, {0, -1, 1}}) {
        EXPECT_THROW(host::sort_by_expert(ctx, choice, begin, rows, slots), UsageError);
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
