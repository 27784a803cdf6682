// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/skipped_steps.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <string_view>

#include "src/step/random_batch.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Steps of a run on one rank whose weights and gradients are finite.
class StepsOfARun : public ::testing::Test {
protected:
    StepsOfARun() {
        options_.model.num_layers = 1;
        options_.model.hidden_size = 8;
        options_.model.ffn_hidden_size = 8;
        options_.model.num_attention_heads = 1;
        options_.model.seq_length = options_.model.max_position_embeddings = 4;
        options_.model.vocab_size = 11;
    }
    /// What `body` prints; it gets a rank that has taken a step.
    std::string printed(const std::function<void(TrainedRank&)>& body) const {
        ::testing::internal::CaptureStdout();
        World::threads(1).run([&](Communicator& world) {
            const auto device = make_host_device();
            TrainedRank rank(world, *device,
                             plan_step(options_.model, StepCluster{}, {}, StepWork{}));
            const RandomBatch batch(options_.model, 1, 1, 1);
            rank.train_step(batch.microbatches(), batch.counted_tokens(), 1e-3);
            body(rank);
        });
        return ::testing::internal::GetCapturedStdout();
    }
    /// How the report of a run ends whose steps changed weights ('u'), were not finite ('n') or had
    /// no labels ('l'): the last line, or what was thrown.
    std::string end_of(std::string_view steps) {
        code_ = ExitCode::ok;
        std::string error;
        const std::string text = printed([&](TrainedRank& rank) {
            RunLog log(options_, 0);
            SkippedSteps skipped(options_, log);
            for (const char step : steps) {
                const double nan = std::numeric_limits<double>::quiet_NaN();
                const StepResult result{
                    .loss = step == 'u' ? 2 : nan, .grad_norm = 1, .updated = step == 'u'};
                EXPECT_TRUE(skipped.add(rank, result, step == 'l' ? 0 : 4));
            }
            log.print_line("the end");
            try {
                skipped.report(static_cast<int64_t>(steps.size()));
            } catch (const AgreedError& thrown) {
                code_ = thrown.exit_code();
                error = thrown.what();
            }
        });
        return error.empty() ? text.substr(text.find("the end\n") + 8) : error;
    }
    TrainOptions options_;
    ExitCode code_ = ExitCode::ok;
};

TEST_F(StepsOfARun, ThatAllChangedWeightsNeedNoWord) {
    EXPECT_EQ(end_of("uuu"), "");
}

TEST_F(StepsOfARun, ThatWereSkippedAreNotedWhereALaterOneWasNot) {
    EXPECT_EQ(end_of("nu"),
              "1 of 2 steps were skipped because the loss or a gradient was not finite\n");
    EXPECT_EQ(end_of("unnunu"),
              "3 of 6 steps were skipped because the loss or a gradient was not finite\n");
    EXPECT_EQ(end_of("nlu"),
              "2 of 3 steps were skipped because the loss or a gradient was not finite, or no "
              "token had a label (1)\n");
    EXPECT_EQ(code_, ExitCode::ok);
}

TEST_F(StepsOfARun, ThatWereSkippedToTheEndAreNoSuccess) {
    EXPECT_THAT(end_of("un"),
                AllOf(StartsWith("1 of 2 steps were skipped because the loss or a gradient was not "
                                 "finite, including the last 1 in a row; the run has diverged"),
                      EndsWith("or resume from an older step")));
    EXPECT_EQ(code_, ExitCode::wrong_values);
    EXPECT_THAT(end_of("nnunln"),
                StartsWith("5 of 6 steps were skipped because the loss or a gradient was not "
                           "finite, or no token had a label (1), including the last 3 in a row;"));
    EXPECT_EQ(code_, ExitCode::wrong_values);
}

TEST_F(StepsOfARun, WithoutLabelsAreNotedButWhereNoneHadAny) {
    for (const char* steps : {"lu", "ul"}) {
        EXPECT_EQ(end_of(steps), "1 of 2 steps were skipped because no token had a label\n");
        EXPECT_EQ(code_, ExitCode::ok);
    }
    EXPECT_THAT(end_of("ll"), StartsWith("2 of 2 steps were skipped because no token had a label: "
                                         "this run has trained nothing; check --eod-token-id"));
    EXPECT_EQ(code_, ExitCode::input_file);
}

TEST_F(StepsOfARun, AreToldOneByOne) {
    const std::string text = printed([&](TrainedRank& rank) {
        RunLog log(options_, 0);
        SkippedSteps skipped(options_, log);
        EXPECT_TRUE(skipped.add(rank, {.loss = 2, .grad_norm = 1, .updated = true}, 4));
        EXPECT_TRUE(skipped.add(rank, {.loss = 2, .grad_norm = INFINITY}, 4));
        EXPECT_TRUE(skipped.add(rank, {.loss = NAN}, 0));
    });
    EXPECT_EQ(text,
              "step 1: loss 2.000000, gradient norm inf; the step is skipped\n"
              "step 1: no labels: --eod-mask-loss or loss weights of 0 leave none; the step is "
              "skipped\n");
}

TEST_F(StepsOfARun, EndAtTheFirstThatIsNotFiniteWhereThatIsAskedFor) {
    options_.stop_at_non_finite = true;
    EXPECT_EQ(printed([&](TrainedRank& rank) {
                  RunLog log(options_, 0);
                  SkippedSteps skipped(options_, log);
                  EXPECT_FALSE(skipped.add(rank, {.loss = NAN, .grad_norm = 1}, 4));
                  EXPECT_THAT([&] { skipped.throw_found(); },
                              ::testing::ThrowsMessage<AgreedError>(
                                  HasSubstr("step 1: loss nan, gradient norm 1.000000; the step "
                                            "changed no weight and is not saved")));
              }),
              "");
}

}  // namespace
}  // namespace vocabpipe::testing
