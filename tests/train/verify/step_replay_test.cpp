// SPDX-License-Identifier: Apache-2.0
// Runs whose first microbatches are computed twice, and faults that happen once.
#include "src/train/verify/step_replay.hpp"
#include "tests/support/stalling_device.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/verify/faulty_device.hpp"
#include "tests/train/verify/verified_meshes.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

class ReplayedRuns : public ::testing::TestWithParam<VerifiedMesh> {};

TEST_P(ReplayedRuns, TrainAsWithoutReplays) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    GetParam().set(options);
    ::testing::internal::CaptureStdout();
    const std::vector<std::string> plain = run.run(GetParam().ranks, options);
    options.replay_interval = 2;
    const std::vector<std::string> replayed = run.run(GetParam().ranks, options);
    (void)::testing::internal::GetCapturedStdout();
    EXPECT_EQ(plain, replayed);
}

INSTANTIATE_TEST_SUITE_P(All, ReplayedRuns, ::testing::ValuesIn(verified_meshes()),
                         [](const auto& info) { return info.param.name; });

/// The error of a run of two ranks that replays every second step, where `device` computes on rank
/// 1, which has layers 2 and 3.
std::string replay_error(const std::function<std::unique_ptr<Device>()>& device,
                         VocabMode mode = VocabMode::one_barrier) {
    const CheckpointRun run;
    TrainOptions options = run.options();
    options.vocab_mode = mode;
    options.replay_interval = 2;
    options.make_device = [&](const RankPlacement& placement) {
        return placement.local_rank == 1 ? device() : make_host_device();
    };
    ::testing::internal::CaptureStdout();
    std::string error = "nothing was found";
    try {
        (void)run.run(2, options);
    } catch (const AgreedError& found) {
        EXPECT_EQ(found.exit_code(), ExitCode::wrong_values) << found.what();
        error = found.what();
    }
    (void)::testing::internal::GetCapturedStdout();
    return error;
}

/// Flips a bit of the last element of the n-th tensor that it is shown, from 1. A first element may
/// change nothing, such as the query of a token that sees itself alone.
class FlipsOneBit {
public:
    explicit FlipsOneBit(int number) : left_(number) {}
    void see(ConstTensor tensor) {
        if (--left_ != 0) return;
        auto* const elements = static_cast<uint32_t*>(const_cast<void*>(tensor.data));
        elements[tensor.size() - 1] ^= 1U << 20U;  // of the mantissa; no sum rounds it off
    }

private:
    std::atomic<int> left_;
};

/// A pass of rank 1 in step 2: step 1 has 6 microbatches in 2 layers, which is 12 products of each
/// kind.
constexpr int kFirstOfStep2 = 13;

TEST(StepReplay, NamesThePassWhoseProductIsWrongOnce) {
    static FlipsOneBit* flips = nullptr;  // operators are plain functions
    FlipsOneBit product(kFirstOfStep2 + 1);
    flips = &product;
    const std::string error = replay_error([] {
        return std::make_unique<FaultyDevice>([](kernels::Operators& operators) {
            operators.linear_forward = [](Context& ctx, ConstTensor x, ConstTensor w,
                                          ConstTensor bias, Tensor y) {
                kernels::host::operators().linear_forward(ctx, x, w, bias, y);
                flips->see(y);
            };
        });
    });
    EXPECT_EQ(error,
              "--replay-steps: step 2: 1F0 on rank 1 has other bits when it is computed again; a "
              "processor, memory or link is faulty: go on from the last saved step without that "
              "host");
}

TEST(StepReplay, NamesThePassThatReadsMemoryWhichHasChanged) {
    static FlipsOneBit* flips = nullptr;
    FlipsOneBit memory(kFirstOfStep2 + 1);
    flips = &memory;
    // The activation changes when the forward has read it, so that the backward reads another one.
    const std::string error = replay_error([] {
        return std::make_unique<FaultyDevice>([](kernels::Operators& operators) {
            operators.linear_gelu_forward = [](Context& ctx, ConstTensor x, ConstTensor w,
                                               ConstTensor bias, Tensor before, Tensor y) {
                kernels::host::operators().linear_gelu_forward(ctx, x, w, bias, before, y);
                flips->see(x);
            };
        });
    });
    EXPECT_NE(error.find("--replay-steps: step 2: the gradient of transformer.h.3.mlp.c_fc.weight "
                         "on rank 1 has other bits"),
              std::string::npos)
        << error;
}

TEST(StepReplay, NamesTheTensorWhoseGradientIsWrongOnce) {
    static FlipsOneBit* flips = nullptr;
    FlipsOneBit gradient(4 * (kFirstOfStep2 - 1) + 1);  // four weights in a layer
    flips = &gradient;
    const std::string error = replay_error([] {
        return std::make_unique<FaultyDevice>([](kernels::Operators& operators) {
            operators.linear_backward_weight = [](Context& ctx, ConstTensor dy, ConstTensor x,
                                                  Tensor dw, Tensor dbias, bool accumulate) {
                kernels::host::operators().linear_backward_weight(ctx, dy, x, dw, dbias,
                                                                  accumulate);
                flips->see(dw);
            };
        });
    });
    EXPECT_NE(error.find("step 2: the gradient of transformer.h.3."), std::string::npos) << error;
    EXPECT_NE(error.find(" on rank 1 has other bits"), std::string::npos) << error;
}

TEST(StepReplay, NamesTheMessageThatArrivesWithOtherBitsThanItWasSent) {
    // Every message to rank 1 is damaged in the same way, so that both runs have the same bits.
    const std::string error = replay_error(
        [] { return make_stalling_device(1, {.damaged_transfer = 0}, nullptr); }, VocabMode::none);
    EXPECT_NE(error.find("--replay-steps: step 2: "), std::string::npos) << error;
    EXPECT_NE(error.find(" on rank 1 has other bits than another rank of it"), std::string::npos)
        << error;
}

TEST(StepReplay, IsRefusedWhereBitsDifferEachTimeAndWhereNothingTrains) {
    const CheckpointRun run;
    const auto refusal = [&](const std::function<void(TrainOptions&)>& set) {
        TrainOptions options = run.options();
        options.replay_interval = 3;
        set(options);
        try {
            (void)run.run(1, options);
        } catch (const AgreedError& error) {
            EXPECT_EQ(error.exit_code(), ExitCode::usage);
            return std::string(error.what());
        }
        return std::string("not refused");
    };
    EXPECT_EQ(refusal([](TrainOptions& o) { o.gpu.nondeterministic_attention = true; }),
              "--replay-steps 3: compares bits, which --nondeterministic-attention changes each "
              "time; remove one of them");
    EXPECT_EQ(refusal([](TrainOptions& o) {
                  o.evaluation.skip_train = true;
                  o.data.valid_path = o.data.path;
              }),
              "--replay-steps 3: there are no steps to replay; remove it or --skip-train");
}

}  // namespace
}  // namespace vocabpipe::testing
