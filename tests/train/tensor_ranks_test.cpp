// SPDX-License-Identifier: Apache-2.0
// Ranks that share stages (tensor parallelism): train to what one rank per stage trains to, within
// rounding; to the same bits again; and the vocabulary layers to the bits of as many shards.
#include "src/model/blocks/layer_options.hpp"
#include "tests/support/schedule_cases.hpp"
#include "tests/train/tensor_setup.hpp"
#include "vocabpipe/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace vocabpipe::testing {
namespace {

struct TensorCell {
    std::string schedule;
    VocabMode mode;
    Mesh mesh;
    int depths = 0;  ///< of multi-token prediction
    friend void PrintTo(const TensorCell& c, std::ostream* out) {
        *out << c.schedule << " " << to_string(c.mode) << " p=" << c.mesh.pipeline
             << " d=" << c.mesh.data << " t=" << c.mesh.tensor << " D=" << c.depths;
    }
};

std::vector<TensorCell> tensor_cells() {
    constexpr std::array kModes{VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};
    std::vector<TensorCell> all;
    for (const VocabMode mode : kModes) {
        for (const Generator& family : generators()) {
            all.push_back({std::string(family.name), mode, {.pipeline = 2, .tensor = 2}});
        }
        for (const Mesh mesh : {Mesh{1, 1, 2}, Mesh{1, 2, 2}, Mesh{2, 2, 2}, Mesh{1, 1, 4}}) {
            all.push_back({"1f1b", mode, mesh});
            all.push_back({"zb-h1", mode, mesh});
        }
    }
    for (const VocabMode mode :
         {VocabMode::none, VocabMode::one_barrier, VocabMode::two_barriers}) {
        for (const char* schedule : {"1f1b", "zb-v", "dualpipe-v"}) {
            all.push_back({schedule, mode, {.pipeline = 2, .tensor = 2}, 2});
        }
        all.push_back({"1f1b", mode, {.pipeline = 1, .tensor = 2}, 1});
        all.push_back({"zb-h1", mode, {.pipeline = 1, .data = 2, .tensor = 2}, 2});
        all.push_back({"zb-h1", mode, {.pipeline = 2, .tensor = 4}, 3});
    }
    return all;
}

class TensorRanks : public ::testing::TestWithParam<TensorCell> {};

TEST_P(TensorRanks, TrainLikeOneRankPerStage) {
    const TensorCell& c = GetParam();
    TrainingSetup setup = tensor_setup(c.schedule, c.mode, c.mesh, "llama", DType::fp32, 3);
    predict_later_tokens(setup, c.depths);
    const Training together = train_on_threads(setup);
    EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
    setup.tensor = 1;
    const Training alone = train_on_threads(setup);
    for (size_t step = 0; step < alone.losses.size(); ++step) {
        EXPECT_NEAR(together.losses[step], alone.losses[step], 2e-5) << step;
        EXPECT_NEAR(together.grad_norms[step], alone.grad_norms[step],
                    1e-4 * alone.grad_norms[step])
            << step;
        ASSERT_EQ(together.depth_losses[step].size(), static_cast<size_t>(c.depths));
        for (size_t k = 0; k < alone.depth_losses[step].size(); ++k) {
            EXPECT_NEAR(together.depth_losses[step][k], alone.depth_losses[step][k], 2e-5)
                << step << " depth " << k + 1;
        }
    }
    EXPECT_LT(largest_difference(alone.gradients, together.gradients), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, TensorRanks, ::testing::ValuesIn(tensor_cells()), [](const auto& info) {
        const TensorCell& c = info.param;
        return test_name(c.schedule + "_" + std::string(to_string(c.mode)) + "_p" +
                         std::to_string(c.mesh.pipeline) + "_d" + std::to_string(c.mesh.data) +
                         "_t" + std::to_string(c.mesh.tensor) +
                         (c.depths > 0 ? "_D" + std::to_string(c.depths) : ""));
    });

class TensorRanksOfFamilies : public ::testing::TestWithParam<std::string> {};

/// With depths, too, in families that can have them.
TEST_P(TensorRanksOfFamilies, TrainLikeOneRankPerStage) {
    for (const auto& [dtype, depths] :
         {std::pair(DType::fp32, 0), {DType::bf16, 0}, {DType::fp32, 2}, {DType::bf16, 2}}) {
        TrainingSetup setup = tensor_setup("zb-h1", VocabMode::one_barrier,
                                           {.pipeline = 2, .tensor = 2}, GetParam(), dtype, 1);
        if (depths > 0 && has_embedded_tokens(setup.config)) continue;
        SCOPED_TRACE(::testing::Message() << "depths " << depths);
        predict_later_tokens(setup, depths);
        const Training together = train_on_threads(setup);
        setup.tensor = 1;
        const Training alone = train_on_threads(setup);
        const bool wide = dtype == DType::fp32;
        EXPECT_NEAR(together.losses[0], alone.losses[0], wide ? 2e-5 : 2e-2);
        EXPECT_LT(largest_difference(alone.gradients, together.gradients), wide ? 1e-4 : 0.12);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, TensorRanksOfFamilies, ::testing::ValuesIn(tensor_families()),
                         [](const auto& info) { return test_name(info.param); });

// Without layers what tensor ranks make of X and of its gradient has no sums that they cut.
TEST(TensorRanks, HaveTheVocabularyOfAsManyShards) {
    for (const VocabMode mode :
         {VocabMode::interlaced, VocabMode::one_barrier, VocabMode::two_barriers}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            for (const Mesh mesh : {Mesh{2, 1, 2}, Mesh{1, 1, 4}, Mesh{2, 2, 2}}) {
                TrainingSetup setup = tensor_setup("1f1b", mode, mesh, "llama", dtype, 1);
                setup.config.num_layers = 0;
                const Training together = train_on_threads(setup);
                setup.ranks *= setup.tensor;
                setup.tensor = 1;
                const Training shards = train_on_threads(setup);
                EXPECT_EQ(together.losses, shards.losses);
                for (const auto& [name, want] : shards.gradients) {
                    if (name.find("norm") != std::string::npos) continue;  // a sum over all tokens
                    EXPECT_EQ(together.gradients.at(name), want)
                        << name << " " << to_string(mode) << " " << mesh.pipeline << " x "
                        << mesh.tensor;
                }
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
