// SPDX-License-Identifier: Apache-2.0
// Runs that are verified before they begin, and faults that the verification must name.
#include "src/runtime/device/forwarding_device.hpp"
#include "src/train/verify/verify_against_one_rank.hpp"
#include "tests/support/stalling_device.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/verify/faulty_device.hpp"
#include "tests/train/verify/verified_meshes.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;

class VerifiedRuns : public ::testing::TestWithParam<VerifiedMesh> {};

TEST_P(VerifiedRuns, AreThoseOfOneRankAndThenTrainAsWithoutVerification) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    GetParam().set(options);
    CaptureStdout();
    const std::vector<std::string> plain = run.run(GetParam().ranks, options);
    (void)GetCapturedStdout();
    options.verify_steps = 3;
    CaptureStdout();
    const std::vector<std::string> verified = run.run(GetParam().ranks, options);
    std::string printed = GetCapturedStdout();
    std::ranges::replace(printed, '\n', ' ');  // lines are wrapped
    EXPECT_EQ(plain, verified);
    const std::string what = GetParam().to_the_bit ? "equal to the bit" : "within rounding";
    EXPECT_NE(printed.find("verified against one rank: 3 steps"), std::string::npos) << printed;
    EXPECT_NE(printed.find(what), std::string::npos) << printed;
}

/// The same where the reference is a pipeline, as where one rank has no room.
TEST_P(VerifiedRuns, AreThoseOfAPipelineOfTwoRanks) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    GetParam().set(options);
    options.verify_steps = 2;
    options.verify_ranks = 2;
    CaptureStdout();
    (void)run.run(GetParam().ranks, options);
    std::string printed = GetCapturedStdout();
    std::ranges::replace(printed, '\n', ' ');  // lines are wrapped
    const std::string what = GetParam().to_the_bit ? "equal to the bit" : "within rounding";
    EXPECT_NE(printed.find("verified against 2 ranks: 2 steps"), std::string::npos) << printed;
    EXPECT_NE(printed.find(what), std::string::npos) << printed;
}

INSTANTIATE_TEST_SUITE_P(All, VerifiedRuns, ::testing::ValuesIn(verified_meshes()),
                         [](const auto& info) { return info.param.name; });

TEST(VerifiedRun, OfASavedStepBeginsWithItsWeightsAndMoments) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.vocab_mode = VocabMode::none;
    options.save = run.path("steps");
    options.train_iters = 3;
    options.learning_rate.decay_iters = 6;
    CaptureStdout();
    (void)run.run(2, options);
    options.load = options.save;
    options.train_iters = 6;
    const std::vector<std::string> plain = run.run(2, options);
    std::filesystem::remove_all(run.path("steps/step-00000006"));
    options.verify_steps = 2;
    const std::vector<std::string> verified = run.run(2, options);
    std::string printed = GetCapturedStdout();
    std::ranges::replace(printed, '\n', ' ');  // lines are wrapped
    EXPECT_EQ(plain, verified);
    EXPECT_NE(printed.find("verified against one rank: 2 steps"), std::string::npos) << printed;
    EXPECT_NE(printed.find("equal to the bit"), std::string::npos) << printed;
}

/// The error of a verification where `device` computes on `rank`.
std::string found(TrainOptions options, int ranks, int rank,
                  const std::function<std::unique_ptr<Device>()>& device) {
    const CheckpointRun run;
    TrainOptions base = run.options();
    options.data = base.data;
    options.verify_steps = 2;
    options.make_device = [=](const RankPlacement& placement) {
        return placement.local_rank == rank ? device() : make_host_device();
    };
    CaptureStdout();
    try {
        (void)run.run(ranks, options);
    } catch (const AgreedError& error) {
        (void)GetCapturedStdout();
        EXPECT_EQ(error.exit_code(), ExitCode::wrong_values) << error.what();
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
        return error.what();
    }
    return "nothing was found: " + GetCapturedStdout();
}

/// What a trainer that forgets `accumulate` does: only the last microbatch counts.
std::unique_ptr<Device> without_accumulation() {
    return std::make_unique<FaultyDevice>([](kernels::Operators& operators) {
        operators.linear_backward_weight = [](Context& ctx, ConstTensor dy, ConstTensor x,
                                              Tensor dw, Tensor dbias, bool) {
            kernels::host::operators().linear_backward_weight(ctx, dy, x, dw, dbias, false);
        };
    });
}

TEST(Verification, NamesTheFirstTensorWhoseGradientIsThatOfTheLastMicrobatchAlone) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            options.vocab_mode = mode;
            options.model.dtype = dtype;
            const std::string error = found(options, 2, 1, without_accumulation);
            EXPECT_NE(error.find("step 1 is not that of one rank: gradient norm"),
                      std::string::npos)
                << error;
            // Rank 1 has layers 2 and 3.
            EXPECT_NE(error.find("gradient of transformer.h.2."), std::string::npos) << error;
            EXPECT_NE(error.find("(layer 2) on rank 1: element ("), std::string::npos) << error;
        }
    }
}

TEST(Verification, NamesTheReplicaThatKeepsItsOwnGradientsForTheSum) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.pipeline_model_parallel_size = 1;
    const std::string error = found(options, 2, 1, [] {
        return std::make_unique<FaultyDevice>([](kernels::Operators& operators) {
            operators.ordered_sum = [](Context& ctx, ConstTensor blocks, int64_t count, int64_t own,
                                       Tensor out) {
                if (own >= 0) return;  // `out` holds this replica's part
                kernels::host::operators().ordered_sum(ctx, blocks, count, own, out);
            };
        });
    });
    EXPECT_NE(error.find("step 1 is not that of one rank: gradient norm"), std::string::npos)
        << error;
    EXPECT_NE(error.find(" on rank 1: element ("), std::string::npos) << error;
}

TEST(Verification, NamesTheReplicaThatDiffersFromAPipelineOfOtherRanks) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.pipeline_model_parallel_size = 1;
    options.verify_ranks = 2;
    // The reference is on ranks 0 and 1.
    const std::string error = found(options, 3, 2, without_accumulation);
    EXPECT_NE(error.find("step 1 is not that of 2 ranks: gradient norm"), std::string::npos)
        << error;
}

TEST(Verification, FindsOneBitOfOneMessage) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.vocab_mode = VocabMode::none;
    const std::string error = found(
        options, 2, 1, [] { return make_stalling_device(1, {.damaged_transfer = 3}, nullptr); });
    EXPECT_NE(error.find("step 1 is not that of one rank: "), std::string::npos) << error;
}

/// A rank's own host, which says how much memory it has.
class SmallDevice final : public ForwardingDevice {
public:
    SmallDevice(int rank, uint64_t free)
        : ForwardingDevice(make_host_device()),
          name_("small " + std::to_string(rank)),
          free_(free) {}
    [[nodiscard]] std::string name() const override { return name_; }
    [[nodiscard]] std::optional<Memory> memory() const override {
        return Memory{.free = free_, .total = free_};
    }

private:
    std::string name_;
    uint64_t free_;
};

TEST(Verification, TakesAsManyRanksAsHaveRoom) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.vocab_mode = VocabMode::none;
    options.verify_steps = 1;
    options.exit_interval = 1;
    const auto printed_with = [&](uint64_t free_bytes) {
        options.make_device = [=](const RankPlacement& placement) {
            return std::make_unique<SmallDevice>(placement.local_rank, free_bytes);
        };
        CaptureStdout();
        try {
            (void)run.run(4, options);
        } catch (const AgreedError& error) {
            return GetCapturedStdout() + error.what();
        }
        std::string printed = GetCapturedStdout();
        std::ranges::replace(printed, '\n', ' ');
        return printed;
    };
    std::string last;
    std::vector<std::string> found;
    for (uint64_t kib = 4096; kib >= 64 && found.size() < 4; kib -= kib / 16) {
        const std::string printed = printed_with(kib << 10);
        for (const char* const what :
             {"verified against one rank", "verified against 2 ranks", "verified against 4 ranks",
              "the reference on 1 rank beside those of the mesh"}) {
            if (printed.find(what) == std::string::npos) continue;
            if (what != last) found.emplace_back(what);
            last = what;
        }
    }
    EXPECT_EQ(found,
              (std::vector<std::string>{"verified against one rank", "verified against 2 ranks",
                                        "verified against 4 ranks",
                                        "the reference on 1 rank beside those of the "
                                        "mesh"}));
}

TEST(Verification, RefusesRunsThatDoNotTrainAndMoreStepsThanTheRunHas) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.verify_steps = 7;
    try {
        (void)run.run(2, options);
        ADD_FAILURE() << "not refused";
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.what(), std::string("--verify-against-one-rank 7: must be at most the "
                                            "number of steps, 6"));
    }
    options.verify_steps = 1;
    options.verify_ranks = 3;
    try {
        (void)run.run(2, options);
        ADD_FAILURE() << "not refused";
    } catch (const AgreedError& error) {
        EXPECT_EQ(error.what(),
                  std::string("--verify-ranks 3: must be at most 2, the number of ranks"));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
