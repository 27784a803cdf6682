// SPDX-License-Identifier: Apache-2.0
// Ranks that share the experts of layers: train to what replicas with all experts train to, within
// rounding; to the same bits again; whatever memory their rows have.
#include "tests/support/schedule_cases.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// One rank has what a team has.
TrainingSetup without_teams(TrainingSetup setup) {
    setup.expert = setup.expert_tensor = setup.tensor = 1;
    return setup;
}

struct ExpertCell {
    std::string schedule;
    VocabMode mode;
    Mesh mesh;
    int expert_tensor = 1;
    int depths = 0;  ///< of multi-token prediction
    friend void PrintTo(const ExpertCell& c, std::ostream* out) {
        *out << c.schedule << " " << to_string(c.mode) << " p=" << c.mesh.pipeline
             << " d=" << c.mesh.data << " t=" << c.mesh.tensor << " e=" << c.mesh.expert
             << " x=" << c.expert_tensor << " D=" << c.depths;
    }
};

/// Every schedule with two stages or more, and every mesh with a full and a split backward; with
/// whole experts and with parts of them.
std::vector<ExpertCell> expert_cells() {
    std::vector<ExpertCell> all;
    for (const Generator& family : generators()) {
        for (const int x : {1, 2}) {
            all.push_back({std::string(family.name), VocabMode::one_barrier, {2, 2, 1, 2}, x});
        }
    }
    for (const Mesh& mesh : {Mesh{1, 2, 1, 2}, Mesh{1, 4, 1, 2}, Mesh{1, 4, 1, 4}, Mesh{1, 1, 2, 2},
                             Mesh{2, 2, 2, 2}, Mesh{1, 2, 2, 4}, Mesh{1, 1, 4, 2}}) {
        all.push_back({"1f1b", VocabMode::two_barriers, mesh});
        all.push_back({"zb-h1", VocabMode::none, mesh});
    }
    for (const auto& [mesh, x] : {std::pair(Mesh{1, 4, 1, 4}, 2),
                                  {Mesh{1, 4, 1, 2}, 2},
                                  {Mesh{1, 1, 2, 2}, 2},
                                  {Mesh{2, 2, 2, 4}, 2},
                                  {Mesh{1, 1, 4, 4}, 4}}) {
        all.push_back({"1f1b", VocabMode::two_barriers, mesh, x});
        all.push_back({"zb-h1", VocabMode::none, mesh, x});
    }
    for (const char* schedule : {"1f1b", "zb-v", "dualpipe-v"}) {
        all.push_back({schedule, VocabMode::one_barrier, {2, 2, 1, 2}, 1, 2});
        all.push_back({schedule, VocabMode::two_barriers, {2, 1, 2, 2}, 1, 1});
    }
    all.push_back({"zb-h1", VocabMode::none, {1, 2, 2, 4}, 2, 2});
    return all;
}

class ExpertRanks : public ::testing::TestWithParam<ExpertCell> {};

TEST_P(ExpertRanks, TrainLikeReplicasWithAllExperts) {
    const ExpertCell& c = GetParam();
    TrainingSetup setup =
        expert_setup(c.schedule, c.mode, c.mesh, "mixtral", DType::fp32, 3, c.expert_tensor);
    setup.config.mtp_num_layers = c.depths;
    const Training together = train_on_threads(setup);
    EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
    const Training alone = train_on_threads(without_teams(setup));
    expect_follows(together, alone, 2e-5);
    EXPECT_LT(largest_difference(alone.gradients, together.gradients), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, ExpertRanks, ::testing::ValuesIn(expert_cells()), [](const auto& info) {
        const ExpertCell& c = info.param;
        return test_name(c.schedule + "_" + std::string(to_string(c.mode)) + "_p" +
                         std::to_string(c.mesh.pipeline) + "_d" + std::to_string(c.mesh.data) +
                         "_t" + std::to_string(c.mesh.tensor) + "_e" +
                         std::to_string(c.mesh.expert) + "_x" + std::to_string(c.expert_tensor) +
                         (c.depths > 0 ? "_D" + std::to_string(c.depths) : ""));
    });

class ExpertRanksOfFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(ExpertRanksOfFamilies, TrainLikeReplicasWithAllExperts) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        const std::vector<Mesh> meshes =
            that_share(expert_model(GetParam(), 3, dtype), {{2, 2, 1, 2}, {1, 1, 2, 2}});
        for (size_t cell = 0; cell < 2 * meshes.size(); ++cell) {
            const Mesh& mesh = meshes[cell / 2];
            const int x = cell % 2 == 0 ? 1 : 2;
            SCOPED_TRACE(::testing::Message() << "t = " << mesh.tensor << " x = " << x);
            const TrainingSetup setup =
                expert_setup("zb-h1", VocabMode::one_barrier, mesh, GetParam(), dtype, 1, x);
            const Training together = train_on_threads(setup);
            const Training alone = train_on_threads(without_teams(setup));
            const bool wide = dtype == DType::fp32;
            if (wide) {
                expect_follows(together, alone, 2e-5);
                EXPECT_EQ(together.correction_biases.size(), static_cast<size_t>(mesh.slices()) *
                                                                 alone.correction_biases.size() /
                                                                 static_cast<size_t>(mesh.data));
                for (const auto& [name, bias] : together.correction_biases) {
                    EXPECT_EQ(bias, alone.correction_biases.find(name)->second) << name;
                }
            } else {
                EXPECT_NEAR(together.losses[0], alone.losses[0], 2e-2);
            }
            EXPECT_LT(largest_difference(alone.gradients, together.gradients), wide ? 1e-4 : 0.2);
        }
    }
}

// The layer of a depth has experts, a router and a correction bias like the model's last one.
TEST_P(ExpertRanksOfFamilies, TrainDepthsLikeReplicasWithAllExperts) {
    for (const Mesh& mesh :
         that_share(expert_model(GetParam(), 3, DType::fp32), {{2, 2, 1, 2}, {1, 1, 2, 2}})) {
        SCOPED_TRACE(::testing::Message() << "t = " << mesh.tensor);
        TrainingSetup setup =
            expert_setup("zb-h1", VocabMode::one_barrier, mesh, GetParam(), DType::fp32, 1);
        setup.config.mtp_num_layers = 2;
        const Training together = train_on_threads(setup);
        const Training alone = train_on_threads(without_teams(setup));
        expect_follows(together, alone, 2e-5);
        for (const auto& [name, bias] : together.correction_biases) {
            EXPECT_EQ(bias, alone.correction_biases.find(name)->second) << name;
        }
        EXPECT_LT(largest_difference(alone.gradients, together.gradients), 1e-4);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertRanksOfFamilies,
                         ::testing::Values("mixtral", "qwen3_moe", "olmoe", "qwen2_moe", "dots1",
                                           "deepseek_v3"),
                         [](const auto& info) { return test_name(info.param); });

// Rows that find no room take another wave.
TEST(ExpertRanks, TrainTheSameWithLessMemoryForRows) {
    for (const auto& [schedule, x] :
         {std::pair("1f1b", 1), {"zb-h1", 1}, {"1f1b", 2}, {"zb-h1", 2}}) {
        TrainingSetup setup = expert_setup(schedule, VocabMode::one_barrier, {1, 2, 1, 2},
                                           "qwen3_moe", DType::fp32, 3, x);
        const Training roomy = train_on_threads(setup);
        setup.moe_row_factor = 0.4;
        const Training narrow = train_on_threads(setup);
        EXPECT_EQ(first_difference(narrow, train_on_threads(setup)), "");
        expect_follows(narrow, roomy, 2e-5);
        EXPECT_LT(largest_difference(roomy.gradients, narrow.gradients), 1e-3);
    }
}

/// More ranks than experts, and as many parts of experts as ranks.
TEST(ExpertRanks, OutnumberTheExpertsTheyShare) {
    struct Sizes {
        int64_t experts;
        Mesh mesh;
        int expert_tensor;
    };
    for (const Sizes& sizes : {Sizes{8, {1, 16, 1, 16}, 2},
                               {8, {1, 4, 4, 16}, 2},
                               {2, {1, 4, 1, 4}, 2},
                               {2, {1, 2, 2, 4}, 4}}) {
        SCOPED_TRACE(::testing::Message() << sizes.experts << " experts t = " << sizes.mesh.tensor);
        TrainingSetup setup = expert_setup("zb-h1", VocabMode::none, sizes.mesh, "mixtral",
                                           DType::fp32, 2, sizes.expert_tensor);
        setup.config.moe.experts = sizes.experts;
        const Training together = train_on_threads(setup);
        EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
        const Training alone = train_on_threads(without_teams(setup));
        expect_follows(together, alone, 2e-5);
        EXPECT_LT(largest_difference(alone.gradients, together.gradients), 2e-3);
    }
}

/// Ranks with parts of the same sequences share parts of the same experts.
TEST(ExpertRanks, ShareExpertsAmongContextRanks) {
    for (const auto& [mesh, x] : {std::pair(Mesh{.expert = 2, .context = 2}, 2),
                                  {Mesh{.data = 2, .expert = 4, .context = 2}, 2},
                                  {Mesh{.tensor = 2, .expert = 4, .context = 2}, 4},
                                  {Mesh{.tensor = 2, .expert = 2, .context = 2}, 2}}) {
        SCOPED_TRACE(::testing::Message() << "t = " << mesh.tensor << " e = " << mesh.expert);
        const TrainingSetup setup =
            expert_setup("zb-h1", VocabMode::one_barrier, mesh, "mixtral", DType::fp32, 3, x);
        const Training together = train_on_threads(setup);
        EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
        const Training alone = train_on_threads(with_whole_sequences(without_teams(setup)));
        expect_follows(together, alone, 2e-5);
        EXPECT_LT(largest_difference(alone.gradients, together.gradients), 2e-3);
    }
}

/// Recomputation makes the copies of all ranks of an expert again, and no other bit.
TEST(ExpertRanks, HaveTheSameBitsWithRecomputation) {
    TrainingSetup setup =
        expert_setup("1f1b", VocabMode::one_barrier, {2, 2, 1, 2}, "qwen2_moe", DType::bf16, 2, 2);
    setup.config.mtp_num_layers = 1;
    const Training kept = train_on_threads(setup);
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        setup.recompute = recompute;
        EXPECT_EQ(first_difference(kept, train_on_threads(setup)), "") << to_string(recompute);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
