// SPDX-License-Identifier: Apache-2.0
// Training whose tensor, context and expert ranks exchange beside no product: the same bits.
#include "src/runtime/device/blocking_exchanges.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"
#include "tests/train/tensor_setup.hpp"
#include "vocabpipe/device.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace vocabpipe::testing {
namespace {

void expect_same_bits(TrainingSetup setup) {
    const Training overlapped = train_on_threads(setup);
    setup.tensor_pieces = 1;
    setup.expert_pieces = {.dispatch = 1, .combine = 1};
    setup.context_exchange.panels = 1;
    setup.make_device = [](int) { return std::make_unique<BlockingExchanges>(make_host_device()); };
    EXPECT_EQ(first_difference(overlapped, train_on_threads(setup)), "");
}

TEST(BlockingExchanges, OfTensorRanksChangeNoBit) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
        for (const Mesh& mesh : {Mesh{.pipeline = 2, .tensor = 2}, Mesh{.tensor = 4}}) {
            SCOPED_TRACE(schedule);
            TrainingSetup setup =
                tensor_setup(schedule, VocabMode::one_barrier, mesh, "llama", DType::fp32, 2);
            setup.tensor_pieces = 4;
            expect_same_bits(setup);
        }
    }
}

TEST(BlockingExchanges, OfContextRanksChangeNoBit) {
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        SCOPED_TRACE(to_string(form));
        TrainingSetup setup = context_setup("zb-h1", VocabMode::two_barriers,
                                            {.tensor = 2, .context = 2}, "llama", DType::fp32, 2);
        setup.context_exchange = {.form = form, .panels = 2};
        expect_same_bits(setup);
    }
}

TEST(BlockingExchanges, OfExpertRanksChangeNoBit) {
    for (const char* family : {"mixtral", "dots1", "qwen2_moe"}) {
        for (const int x : {1, 2}) {
            for (const Mesh& mesh : {Mesh{.pipeline = 2, .data = 2, .expert = 2},
                                     Mesh{.data = 2, .tensor = 2, .expert = 4}}) {
                SCOPED_TRACE(::testing::Message() << family << " x = " << x);
                expect_same_bits(
                    expert_setup("zb-h1", VocabMode::one_barrier, mesh, family, DType::fp32, 2, x));
            }
        }
    }
    TrainingSetup waves = expert_setup("1f1b", VocabMode::none, {.data = 2, .expert = 2},
                                       "qwen3_moe", DType::fp32, 2);
    waves.moe_row_factor = 0.4;
    expect_same_bits(waves);
}

}  // namespace
}  // namespace vocabpipe::testing
