// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/kept_on_host.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace vocabpipe::testing {
namespace {

TEST(KeptOnHost, IsFoundWhereItWasLeftUntilItsMemoryIsUsedAgain) {
    std::vector<float> memory(100);
    const auto at = [&](int64_t first, int64_t count) {
        return Tensor(memory.data() + first, 1, count, DType::fp32);
    };
    KeptOnHost<std::unique_ptr<int>> kept;
    for (const int i : {2, 0, 1}) kept.keep(at(10 * i, 10), std::make_unique<int>(i));
    for (const int i : {0, 1, 2}) EXPECT_EQ(*kept.find(at(10 * i, 10)), i);
    EXPECT_THROW((void)kept.find(at(5, 10)), UsageError);

    kept.keep(at(10, 10), std::make_unique<int>(7));  // the same memory
    EXPECT_EQ(*kept.find(at(10, 10)), 7);
    kept.keep(at(19, 2), std::make_unique<int>(8));  // a byte of the second and of the third
    EXPECT_EQ(*kept.find(at(19, 2)), 8);
    EXPECT_EQ(*kept.find(at(0, 10)), 0);
    EXPECT_THROW((void)kept.find(at(10, 10)), UsageError);
    EXPECT_THROW((void)kept.find(at(20, 10)), UsageError);
}

}  // namespace
}  // namespace vocabpipe::testing
