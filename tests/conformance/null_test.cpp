// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "kernels/null/operators.hpp"
#include "src/runtime/device/null/device.hpp"
#include "tests/conformance/operator_entries.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::kernels::test {
namespace {

using testing::HasSubstr;

TEST(NullDevice, HasMemoryAndATableOfItsOwn) {
    const auto device = make_null_device();
    EXPECT_EQ(device->name(), "null");
    const DeviceMemory memory = device->allocate(5000, "a test");
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
    EXPECT_THAT(memory.bytes(), testing::Each(std::byte{0}));
    const std::vector<std::byte> from{std::byte{3}, std::byte{4}};
    std::vector<std::byte> to(2);
    device->upload(from, memory.data() + 7);
    device->download(memory.data() + 7, to);
    EXPECT_EQ(to, from);
    const Context ctx(device->context(1, {}));
    EXPECT_EQ(&ctx.operators(), &null::operators());
    EXPECT_THAT(entries_of(null::operators()), testing::Each(testing::NotNull()));
}

/// What an operator says when it is called with nothing.
template <typename Result, typename... Arguments>
std::string refusal(Result (*call)(Arguments...)) {
    static Context ctx({.poll = {}});
    const auto argument = []<typename Argument>() -> Argument {
        if constexpr (std::is_same_v<Argument, Context&>) {
            return ctx;
        } else {
            static std::remove_cvref_t<Argument> nothing{};
            return nothing;
        }
    };
    try {
        (void)call(argument.template operator()<Arguments>()...);
    } catch (const Error& error) {
        return error.what();
    }
    return "it does not refuse";
}

TEST(NullDevice, RefusesEveryOperatorByItsName) {
    const Operators& table = null::operators();
#define VOCABPIPE_OPERATOR(name) EXPECT_THAT(refusal(table.name), HasSubstr(#name));
#include "kernels/operator_list.inc"
}

TEST(NullDevice, ChecksArgumentsBeforeItRefuses) {
    const Operators& table = null::operators();
    Context ctx({.poll = {}});
    std::vector<float> values(8);
    const Tensor two(values.data(), 2, 4, DType::fp32), one(values.data(), 1, 4, DType::fp32);
    EXPECT_THROW(table.fold_partials(ctx, two, 3, {}, {}, one), UsageError);
    try {
        table.fold_partials(ctx, two, 2, {}, {}, one);
        FAIL() << "it does not refuse";
    } catch (const DeviceError& error) {
        EXPECT_STREQ(error.what(), "operator fold_partials is not implemented on the device null");
    }
}

}  // namespace
}  // namespace vocabpipe::kernels::test
