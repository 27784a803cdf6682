// SPDX-License-Identifier: Apache-2.0
// Runs whose replicas keep their own part of gradients and weights alone, stopped in the middle and
// resumed with the same or another ZeRO stage.
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using Losses = std::vector<std::string>;

class ResumeZero : public ::testing::Test {
protected:
    struct Run {
        ZeroOptions zero;
        int pipeline = 1;
        int replicas = 2;
        DType dtype = DType::bf16;
        std::string family = "gpt2";  ///< whose matrices are transposed in files
        std::string schedule = "interleaved";
    };

    /// Steps 1 to 6, of which step 3 is left in the folder.
    [[nodiscard]] Losses whole(const Run& run, const std::string& folder,
                               bool async = false) const {
        TrainOptions o = options(run);
        o.async_save = async;
        return runs_.run_and_leave_step_3(run.pipeline * run.replicas, o, folder);
    }
    /// Steps 4 to 6.
    [[nodiscard]] Losses resumed(const Run& run, const std::string& folder) const {
        return runs_.resume(run.pipeline * run.replicas, options(run), folder);
    }
    [[nodiscard]] std::map<std::string, std::string> saved(const std::string& folder) const {
        std::map<std::string, std::string> files = contents(step_folder(runs_.path(folder), 3));
        std::erase_if(files,
                      [](const auto& file) { return !file.first.ends_with(".safetensors"); });
        return files;
    }

private:
    [[nodiscard]] TrainOptions options(const Run& run) const {
        TrainOptions o = runs_.options();
        o.model.num_attention_heads = 4;
        o.model.dtype = run.dtype;
        set_family(o.model, run.family);
        o.pipeline_model_parallel_size = run.pipeline;
        o.schedule = run.schedule;
        if (run.schedule == "interleaved") o.rule.chunks = 4 / run.pipeline;
        o.zero = run.zero;
        return o;
    }

    CheckpointRun runs_;
};

constexpr ZeroOptions kStep2{.stage = 2, .reshard_after = ReshardAfter::step};
constexpr ZeroOptions kStep3{.stage = 3, .reshard_after = ReshardAfter::step};
constexpr ZeroOptions kUse3{.stage = 3};

TEST_F(ResumeZero, SavesTheFilesOfStage1AndResumesAnyStageToTheSameBits) {
    for (const char* family : {"gpt2", "llama"}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(::testing::Message() << family << " " << size_of(dtype));
            const Run first{.dtype = dtype, .family = family};
            const Losses expected = whole(first, "stage1");
            ASSERT_EQ(expected.size(), 6U);
            for (const ZeroOptions& zero : {kStep2, kStep3}) {
                Run run = first;
                run.zero = zero;
                EXPECT_EQ(whole(run, "other"), expected) << zero.stage;
                EXPECT_EQ(saved("other"), saved("stage1")) << zero.stage;
                EXPECT_EQ(resumed(run, "stage1"), last(expected, 3)) << zero.stage;
                EXPECT_EQ(resumed(first, "other"), last(expected, 3)) << zero.stage;
                EXPECT_EQ(whole(run, "async", true), expected) << zero.stage;
                EXPECT_EQ(saved("async"), saved("stage1")) << zero.stage;
            }
        }
    }
}

TEST_F(ResumeZero, IsBitExactWhereGradientsAreAddedUpAfterEachUse) {
    for (const int pipeline : {1, 2}) {
        for (const int replicas : {2, 3}) {
            const Run run{.zero = kUse3, .pipeline = pipeline, .replicas = replicas};
            const Losses expected = whole(run, "run");
            ASSERT_EQ(expected.size(), 6U);
            EXPECT_EQ(resumed(run, "run"), last(expected, 3)) << pipeline << " " << replicas;
        }
    }
}

TEST_F(ResumeZero, FollowsTheCurveOnOtherRanks) {
    const Run three{.zero = kUse3, .replicas = 3, .dtype = DType::fp32};
    const std::vector<double> expected = CheckpointRun::losses(whole(three, "three"));
    for (const Run& other : {Run{.zero = kUse3, .pipeline = 2, .replicas = 1, .dtype = DType::fp32},
                             Run{.zero = kStep2, .replicas = 2, .dtype = DType::fp32}}) {
        const std::vector<double> found = CheckpointRun::losses(resumed(other, "three"));
        ASSERT_EQ(found.size(), 3U);
        for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], expected[i + 3], 5e-6) << i;
    }
}

}  // namespace
}  // namespace vocabpipe::testing
