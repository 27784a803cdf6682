// SPDX-License-Identifier: Apache-2.0
// Runs whose stages tensor ranks share, whose sequences context ranks, or whose experts expert
// ranks, stopped in the middle and resumed on this and other meshes.
#include "tests/train/checkpoint/checkpoint_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using Losses = std::vector<std::string>;

class ResumeOnTensorRanks : public ::testing::Test {
protected:
    struct Run {
        Mesh mesh;
        VocabMode mode = VocabMode::none;
        DType dtype = DType::fp32;
        bool tied = true;
        std::string family = "gpt2";
        std::optional<Recompute> recompute = std::nullopt;
        ContextForm form = ContextForm::allgather;
        int expert_tensor = 1;  ///< of the mesh's expert ranks
        int depths = 0;         ///< of multi-token prediction
    };

    /// Steps 1 to 6, of which step 3 is left in the folder.
    [[nodiscard]] Losses whole(const Run& run, const std::string& folder) const {
        return runs_.run_and_leave_step_3(run.mesh.size(), options(run), folder);
    }
    /// Steps 4 to 6.
    [[nodiscard]] Losses resumed(const Run& run, const std::string& folder) const {
        return runs_.resume(run.mesh.size(), options(run), folder);
    }
    [[nodiscard]] static std::string text(const Mesh& mesh) {
        return "p=" + std::to_string(mesh.pipeline) + " d=" + std::to_string(mesh.data) +
               " t=" + std::to_string(mesh.tensor) + " C=" + std::to_string(mesh.context) +
               " e=" + std::to_string(mesh.expert);
    }
    static void expect_near(const Losses& found, const Losses& expected) {
        const std::vector<double> a = CheckpointRun::losses(found);
        const std::vector<double> b = CheckpointRun::losses(expected);
        ASSERT_EQ(a.size(), b.size());
        for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 5e-6) << i;
    }

private:
    [[nodiscard]] TrainOptions options(const Run& run) const {
        TrainOptions o = runs_.options();
        o.model.num_attention_heads = 4;
        o.model.dtype = run.dtype;
        o.model.tied = run.tied;
        set_family(o.model, run.family);
        if (o.model.moe.experts > 0) o.model.moe.experts = 4;
        if (run.family == "dots1") {
            o.model.moe.sparse = {false, true, true, true};
            o.model.moe.bias_rate = 0.01F;
        }
        o.model.mtp_num_layers = run.depths;
        o.recompute = run.recompute;
        o.vocab_mode = run.mode;  // of 61 rows: parts of tensor ranks differ by one
        o.pipeline_model_parallel_size = run.mesh.pipeline;
        o.tensor_model_parallel_size = run.mesh.tensor;
        o.expert_model_parallel_size = run.mesh.expert / run.expert_tensor;
        o.expert_tensor_parallel_size = run.expert_tensor;
        o.context_parallel_size = run.mesh.context;
        o.context_form = run.form;
        return o;
    }

    CheckpointRun runs_;
};

TEST_F(ResumeOnTensorRanks, IsBitExactOnTheSameMesh) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const Run& run : {Run{{1, 1, 2}, VocabMode::none, dtype, true},
                               Run{{2, 1, 2}, VocabMode::none, dtype, true},
                               Run{{2, 2, 2}, VocabMode::one_barrier, dtype, true},
                               Run{{1, 1, 4}, VocabMode::two_barriers, dtype, false}}) {
            SCOPED_TRACE(::testing::Message() << text(run.mesh) << " " << size_of(dtype));
            const Losses expected = whole(run, "run");
            ASSERT_EQ(expected.size(), 6U);
            EXPECT_EQ(resumed(run, "run"), last(expected, 3));
        }
    }
}

TEST_F(ResumeOnTensorRanks, FollowsTheCurveFromOneMeshToAnother) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        for (const bool tied : {true, false}) {
            SCOPED_TRACE(::testing::Message() << to_string(mode) << (tied ? " tied" : ""));
            const Losses expected = whole({{1, 1, 1}, mode, DType::fp32, tied}, "alone");
            const Run eight{{2, 2, 2}, mode, DType::fp32, tied};
            const Run four{{4, 1, 1}, mode, DType::fp32, tied};
            expect_near(whole(eight, "eight"), expected);
            expect_near(whole(four, "four"), expected);
            expect_near(resumed(four, "eight"), last(expected, 3));
            expect_near(resumed(eight, "four"), last(expected, 3));
            expect_near(resumed({{2, 1, 4}, mode, DType::fp32, tied}, "eight"), last(expected, 3));
        }
    }
}

/// Exactly on the same mesh, and along the curve on others.
TEST_F(ResumeOnTensorRanks, ResumesSeveralPredictedTokensOnAnyMesh) {
    const auto on = [](const Mesh& mesh, const char* family, int depths) {
        Run run{mesh, VocabMode::one_barrier, DType::fp32, false, family};
        run.depths = depths;
        return run;
    };
    const Losses expected = whole(on({1, 1, 1}, "llama", 2), "alone");
    const Run eight = on({2, 2, 2}, "llama", 2);
    const Losses together = whole(eight, "eight");
    EXPECT_EQ(resumed(eight, "eight"), last(together, 3));
    expect_near(together, expected);
    expect_near(resumed(eight, "alone"), last(expected, 3));
    expect_near(resumed(on({1, 1, 4}, "llama", 2), "eight"), last(expected, 3));
    expect_near(resumed(on({2, 1, 1}, "llama", 2), "eight"), last(expected, 3));

    const Run experts = on({2, 2, 1, 2}, "mixtral", 1);
    const Losses shared = whole(experts, "experts");
    EXPECT_EQ(resumed(experts, "experts"), last(shared, 3));
    expect_near(resumed(on({2, 2}, "mixtral", 1), "experts"), last(shared, 3));
    expect_near(resumed(on({1, 2, 2, 4}, "mixtral", 1), "experts"), last(shared, 3));
}

using ResumeOnExpertRanks = ResumeOnTensorRanks;

TEST_F(ResumeOnExpertRanks, IsBitExactOnTheSameMesh) {
    for (const Run& run : {Run{{2, 2, 1, 2}, VocabMode::one_barrier, DType::fp32, false, "mixtral"},
                           Run{{1, 2, 1, 2}, VocabMode::none, DType::bf16, false, "dots1"},
                           Run{{1, 1, 2, 2}, VocabMode::none, DType::fp32, false, "qwen2_moe"}}) {
        SCOPED_TRACE(run.family);
        const Losses expected = whole(run, "run");
        ASSERT_EQ(expected.size(), 6U);
        EXPECT_EQ(resumed(run, "run"), last(expected, 3));
    }
}

TEST_F(ResumeOnExpertRanks, FollowsTheCurveFromOneMeshToAnother) {
    for (const char* const family : {"mixtral", "dots1"}) {
        SCOPED_TRACE(family);
        const auto on = [&](const Mesh& mesh) {
            return Run{mesh, VocabMode::one_barrier, DType::fp32, false, family};
        };
        const Losses expected = whole(on({2, 2}), "alone");
        expect_near(whole(on({2, 2, 1, 2}), "four"), expected);
        expect_near(resumed(on({4, 1}), "four"), last(expected, 3));
        expect_near(resumed(on({1, 2, 2, 4}), "four"), last(expected, 3));
        expect_near(resumed(on({2, 2, 1, 2}), "alone"), last(expected, 3));
    }
}

TEST_F(ResumeOnExpertRanks, FollowsTheCurveWhateverPartOfAnExpertRanksHave) {
    for (const char* const family : {"mixtral", "dots1"}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            SCOPED_TRACE(::testing::Message() << family << " " << size_of(dtype));
            const auto on = [&](const Mesh& mesh, int expert_tensor) {
                return Run{.mesh = mesh,
                           .dtype = dtype,
                           .tied = false,
                           .family = family,
                           .expert_tensor = expert_tensor};
            };
            const Losses expected = whole(on({1, 2, 2, 2}, 2), "parts");
            EXPECT_EQ(resumed(on({1, 2, 2, 2}, 2), "parts"), last(expected, 3));
            if (dtype == DType::bf16) continue;  // other meshes round otherwise
            const Losses of_whole = whole(on({1, 2, 2, 2}, 1), "whole");
            expect_near(of_whole, expected);
            expect_near(resumed(on({1, 2, 2, 2}, 1), "parts"), last(expected, 3));
            expect_near(resumed(on({1, 2, 2, 2}, 2), "whole"), last(expected, 3));
            expect_near(resumed(on({1, 1, 1, 1}, 1), "parts"), last(expected, 3));
            expect_near(resumed(on({1, 2, 2, 4}, 4), "parts"), last(expected, 3));
        }
    }
}

TEST_F(ResumeOnExpertRanks, RecomputationHasTheSameBits) {
    Run run{{2, 2, 1, 2}, VocabMode::one_barrier, DType::fp32, false, "qwen2_moe"};
    const Losses expected = whole(run, "run");
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        run.recompute = recompute;
        EXPECT_EQ(whole(run, "again"), expected) << to_string(recompute);
    }
}

using ResumeOnContextRanks = ResumeOnTensorRanks;

TEST_F(ResumeOnContextRanks, IsBitExactOnTheSameMesh) {
    const auto form = ContextForm::a2a;
    for (const Run& run :
         {Run{{.context = 2}, VocabMode::none},
          Run{{.pipeline = 2, .context = 2}, VocabMode::one_barrier, DType::bf16},
          Run{{.pipeline = 2, .data = 2, .tensor = 2, .context = 2}, VocabMode::two_barriers},
          Run{.mesh = {.data = 2, .context = 2}, .family = "llama", .form = form},
          Run{.mesh = {.expert = 2, .context = 2}, .tied = false, .family = "dots1"}}) {
        SCOPED_TRACE(text(run.mesh));
        const Losses expected = whole(run, "run");
        ASSERT_EQ(expected.size(), 6U);
        EXPECT_EQ(resumed(run, "run"), last(expected, 3));
    }
}

TEST_F(ResumeOnContextRanks, FollowsTheCurveFromOneMeshToAnother) {
    for (const char* const family : {"gpt2", "mixtral"}) {
        SCOPED_TRACE(family);
        const auto on = [&](const Mesh& mesh) {
            return Run{mesh, VocabMode::one_barrier, DType::fp32, false, family};
        };
        const Losses expected = whole(on({}), "alone");
        const Run sixteen = on({.pipeline = 2, .data = 2, .tensor = 2, .context = 2});
        expect_near(whole(sixteen, "sixteen"), expected);
        for (const Mesh& mesh :
             {Mesh{}, Mesh{.pipeline = 2, .tensor = 2}, Mesh{.context = 4},
              Mesh{.pipeline = 2, .context = 4}, Mesh{.data = 2, .context = 2}}) {
            SCOPED_TRACE(text(mesh));
            expect_near(resumed(on(mesh), "sixteen"), last(expected, 3));
            expect_near(resumed(on(mesh), "alone"), last(expected, 3));
        }
        Run exchanged = on({.tensor = 2, .context = 2});
        exchanged.form = ContextForm::a2a;
        expect_near(resumed(exchanged, "sixteen"), last(expected, 3));
    }
}

}  // namespace
}  // namespace vocabpipe::testing
