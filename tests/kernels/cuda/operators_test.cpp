// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/operators.hpp"

#include <gmock/gmock.h>

#include <set>

#include "kernels/host/operators.hpp"
#include "tests/conformance/operator_entries.hpp"

namespace vocabpipe::kernels::test {
namespace {

TEST(Operators, OfTheGpuAreAllThereAndNoneIsTheHosts) {
    const auto entries = entries_of(cuda::operators());
    EXPECT_THAT(entries, ::testing::Each(::testing::NotNull()));
    std::set all(entries.begin(), entries.end());
    const auto of_host = entries_of(host::operators());
    all.insert(of_host.begin(), of_host.end());
    EXPECT_EQ(all.size(), 2 * entries.size());
}

}  // namespace
}  // namespace vocabpipe::kernels::test
