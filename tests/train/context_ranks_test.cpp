// SPDX-License-Identifier: Apache-2.0
// Ranks that share sequences (context parallelism): train to what one rank with whole sequences
// trains to, within rounding, and to the same bits again, in both forms of exchange.
#include "tests/support/schedule_cases.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"
#include "vocabpipe/mesh.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

void expect_follows_whole(const Training& together, const Training& alone, double bound) {
    if (alone.routers.front()) return expect_follows(together, alone, bound);
    for (size_t step = 0; step < alone.losses.size(); ++step) {
        EXPECT_NEAR(together.losses[step], alone.losses[step], bound) << step;
        EXPECT_NEAR(together.grad_norms[step] / alone.grad_norms[step], 1, 5 * bound) << step;
    }
}

struct ContextCell {
    std::string schedule;
    VocabMode mode;
    Mesh mesh;
    ContextForm form = ContextForm::allgather;
    friend void PrintTo(const ContextCell& c, std::ostream* out) {
        *out << c.schedule << " " << to_string(c.mode) << " p=" << c.mesh.pipeline
             << " d=" << c.mesh.data << " t=" << c.mesh.tensor << " C=" << c.mesh.context << " "
             << to_string(c.form);
    }
};

std::vector<ContextCell> context_cells() {
    constexpr std::array kModes{VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};
    std::vector<ContextCell> all;
    for (const VocabMode mode : kModes) {
        for (const Generator& family : generators()) {
            all.push_back({std::string(family.name), mode, {.pipeline = 2, .context = 2}});
        }
        for (const Mesh mesh : {Mesh{.context = 2}, Mesh{.data = 2, .context = 2},
                                Mesh{.pipeline = 2, .tensor = 2, .context = 2}, Mesh{.context = 3},
                                Mesh{.tensor = 2, .context = 4}}) {
            all.push_back({"1f1b", mode, mesh});
            all.push_back({"zb-h1", mode, mesh});
        }
        all.push_back({"1f1b", mode, {.pipeline = 2, .data = 2, .context = 2}, ContextForm::a2a});
        all.push_back({"zb-h1", mode, {.tensor = 2, .context = 2}, ContextForm::a2a});
    }
    return all;
}

class ContextRanks : public ::testing::TestWithParam<ContextCell> {};

TEST_P(ContextRanks, TrainLikeOneRankWithWholeSequences) {
    const ContextCell& c = GetParam();
    TrainingSetup setup = context_setup(c.schedule, c.mode, c.mesh, "llama", DType::fp32, 3);
    setup.context_exchange.form = c.form;
    const Training together = train_on_threads(setup);
    EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
    const Training alone = train_on_threads(with_whole_sequences(setup));
    expect_follows_whole(together, alone, 2e-5);
    EXPECT_LT(largest_difference(alone.gradients, together.gradients), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(
    Matrix, ContextRanks, ::testing::ValuesIn(context_cells()), [](const auto& info) {
        const ContextCell& c = info.param;
        return test_name(c.schedule + "_" + std::string(to_string(c.mode)) + "_p" +
                         std::to_string(c.mesh.pipeline) + "_d" + std::to_string(c.mesh.data) +
                         "_t" + std::to_string(c.mesh.tensor) + "_C" +
                         std::to_string(c.mesh.context) + "_" + std::string(to_string(c.form)));
    });

class ContextRanksOfFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(ContextRanksOfFamilies, TrainLikeOneRankWithWholeSequences) {
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            for (const bool documents : {false, true}) {
                TrainingSetup setup =
                    context_setup("zb-h1", VocabMode::one_barrier, {.pipeline = 2, .context = 2},
                                  GetParam(), dtype, 1);
                setup.context_exchange.form = form;
                setup.documents = documents;
                const Training together = train_on_threads(setup);
                const Training alone = train_on_threads(with_whole_sequences(setup));
                const bool wide = dtype == DType::fp32;
                if (wide) expect_follows_whole(together, alone, 2e-5);
                EXPECT_NEAR(together.losses[0], alone.losses[0], 2e-2);
                EXPECT_LT(largest_difference(alone.gradients, together.gradients),
                          wide ? 1e-4 : 0.2)
                    << to_string(form) << " " << wide << documents;
            }
        }
    }
}

std::vector<std::string> families_with_cut_sequences() {
    std::vector<std::string> families = model_families();
    std::erase_if(families, [](const std::string& name) {
        return small_family(name, 1, 8, 29, false).has_latents();
    });
    return families;
}

INSTANTIATE_TEST_SUITE_P(Models, ContextRanksOfFamilies,
                         ::testing::ValuesIn(families_with_cut_sequences()),
                         [](const auto& info) { return test_name(info.param); });

TEST(ContextRanks, TrainModelsWithSinksLikeOneRankWithWholeSequences) {
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        TrainingSetup setup =
            context_setup("zb-h1", VocabMode::one_barrier,
                          {.pipeline = 2, .tensor = 2, .context = 2}, "llama", DType::fp32, 3);
        setup.config.softmax_type = SoftmaxType::learnable;
        setup.context_exchange.form = form;
        const Training together = train_on_threads(setup);
        const Training alone = train_on_threads(with_whole_sequences(setup));
        expect_follows_whole(together, alone, 2e-5);
        EXPECT_LT(largest_difference(alone.gradients, together.gradients), 2e-3) << to_string(form);
        setup.config.softmax_type = SoftmaxType::vanilla;
        EXPECT_GT(std::abs(train_on_threads(setup).losses[0] - alone.losses[0]), 1e-4);
    }
}

TEST(ContextRanks, HaveTheSameBitsForAnyNumberOfPanels) {
    for (const ContextForm form : {ContextForm::allgather, ContextForm::a2a}) {
        TrainingSetup setup =
            context_setup("zb-h1", VocabMode::two_barriers, {.context = 2}, "gpt2", DType::fp32, 2);
        setup.config.num_attention_heads = 8;
        setup.context_exchange = {.form = form, .panels = 1};
        const Training one = train_on_threads(setup);
        for (const int panels : {2, 3, 4, 8}) {
            setup.context_exchange.panels = panels;
            EXPECT_EQ(first_difference(one, train_on_threads(setup)), "") << panels;
        }
    }
}

// Each form rounds in its own way: that bits differ shows that both are used.
TEST(ContextRanks, ExchangeInTheFormThatIsAsked) {
    TrainingSetup setup =
        context_setup("1f1b", VocabMode::none, {.context = 2}, "gpt2", DType::fp32, 1);
    const Training gathered = train_on_threads(setup);
    setup.context_exchange.form = ContextForm::a2a;
    EXPECT_NE(first_difference(gathered, train_on_threads(setup)), "");
}

TEST(ContextRanks, RecomputeAndStreamBoundaries) {
    for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
        TrainingSetup setup = context_setup("1f1b", VocabMode::one_barrier,
                                            {.pipeline = 2, .context = 2}, "qwen3", DType::fp32, 2);
        const Training kept = train_on_threads(setup);
        setup.recompute = recompute;
        EXPECT_EQ(first_difference(kept, train_on_threads(setup)), "");
        setup.pieces = 3;
        EXPECT_EQ(first_difference(kept, train_on_threads(setup)), "");
    }
}

TEST(ContextRanks, ShareExperts) {
    for (const Mesh mesh :
         {Mesh{.expert = 2, .context = 2}, Mesh{.data = 2, .expert = 4, .context = 2},
          Mesh{.tensor = 2, .expert = 2, .context = 2}}) {
        const TrainingSetup setup =
            expert_setup("1f1b", VocabMode::one_barrier, mesh, "mixtral", DType::fp32, 3);
        TrainingSetup alone = with_whole_sequences(setup);
        alone.expert = alone.tensor = 1;
        const Training together = train_on_threads(setup);
        EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
        const Training whole = train_on_threads(alone);
        expect_follows(together, whole, 2e-5);
        EXPECT_LT(largest_difference(whole.gradients, together.gradients), 2e-3);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
