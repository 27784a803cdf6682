// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>

#include "kernels/host/operators.hpp"
#include "tests/conformance/operator_entries.hpp"
#include "tests/conformance/operator_test.hpp"

namespace vocabpipe::kernels::test {
namespace {

using OperatorTable = OperatorTest<>;

/// The reference borrows from the host what it has no loops for.
TEST_P(OperatorTable, HasEveryEntryOnceAndNoneOfTheHosts) {
    const auto entries = entries_of(ops());
    EXPECT_THAT(entries, testing::Each(testing::NotNull()));
    std::set all(entries.begin(), entries.end());
    EXPECT_EQ(all.size(), entries.size());
    if (&ops() == &host::operators()) return;
    const auto of_host = entries_of(host::operators());
    all.insert(of_host.begin(), of_host.end());
    EXPECT_EQ(all.size(), 2 * entries.size());
}

INSTANTIATE_TEST_SUITE_P(Devices, OperatorTable,
                         testing::Combine(testing::ValuesIn(product_devices())), kNames);

}  // namespace
}  // namespace vocabpipe::kernels::test
