// SPDX-License-Identifier: Apache-2.0
// Runs that train adapters: the bits of one rank on any pipeline, and its values on ranks that
// share stages, sequences or steps.
#include "src/model/parameter_groups.hpp"
#include "src/model/parameters.hpp"
#include "tests/model/folded_adapters.hpp"
#include "tests/model/model_cases.hpp"
#include "tests/support/one_rank_schedule.hpp"
#include "tests/train/context_setup.hpp"
#include "tests/train/expert_setup.hpp"
#include "tests/train/tensor_setup.hpp"
#include "vocabpipe/model_rank.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// Gives the run's model adapters, and freezes all else.
TrainingSetup adapted(TrainingSetup setup) {
    setup.config = with_adapters(std::move(setup.config), 3, 4.5F);
    setup.frozen = frozen_parameters({}, logical_parameters(setup.config));
    return setup;
}

TrainingSetup pipeline_setup(const std::string& family, const std::string& schedule, int ranks) {
    TrainingSetup setup{
        .config = small_family(family, 4, 7, 29, false), .family = schedule, .ranks = ranks};
    setup.steps = 4;
    return adapted(setup);
}

/// Families whose files split q, k and v, keep them side by side, or head by head.
constexpr const char* kFamilies[] = {"llama", "gpt2", "phi3", "gpt_neox"};

TEST(AdapterTraining, HasTheBitsOfOneRankOnAnyPipeline) {
    for (const char* family : kFamilies) {
        for (const DType dtype : {DType::fp32, DType::bf16}) {
            TrainingSetup setup = pipeline_setup(family, "1f1b", 1);
            setup.config.dtype = dtype;
            const Training expected = train_on_threads(setup);
            for (const auto& [schedule, ranks] :
                 std::map<std::string, int>{{"1f1b", 2}, {"zb-h1", 4}, {"zb-v", 2}}) {
                for (const Recompute recompute :
                     {Recompute::none, Recompute::selective, Recompute::full}) {
                    SCOPED_TRACE(std::string(family) + " " + schedule + " " +
                                 std::string(to_string(recompute)));
                    setup.family = schedule;
                    setup.ranks = ranks;
                    setup.recompute = recompute;
                    EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "");
                }
            }
        }
    }
}

TEST(AdapterTraining, HasTheSameBitsWhereReplicasShareAdapters) {
    for (const char* schedule : {"interleaved", "zb-v"}) {
        TrainingSetup setup = pipeline_setup("llama", schedule, 2);
        setup.replicas = 2;
        const Training expected = train_on_threads(setup);
        for (const int stage : {2, 3}) {
            setup.zero = {.stage = stage, .reshard_after = ReshardAfter::step};
            EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "") << stage;
            setup.zero.reshard_after = ReshardAfter::use;
            const Training each_use = train_on_threads(setup);
            for (size_t step = 0; step < expected.grad_norms.size(); ++step) {
                EXPECT_NEAR(each_use.grad_norms[step], expected.grad_norms[step], 1e-4);
            }
        }
    }
}

TEST(AdapterTraining, MovesAdaptersAndNothingElse) {
    for (const char* family : kFamilies) {
        TrainingSetup setup = pipeline_setup(family, "zb-h1", 2);
        setup.steps = 1;
        const Training first = train_on_threads(setup);
        setup.steps = 6;
        const Training last = train_on_threads(setup);
        for (const LogicalParameter& p : logical_parameters(setup.config)) {
            EXPECT_EQ(last.gradients.contains(p.name), p.adapter) << p.name;
            ASSERT_EQ(last.weights.contains(p.name), p.adapter) << p.name;  // those with masters
            if (!p.adapter) continue;
            EXPECT_NE(first.weights.at(p.name), last.weights.at(p.name)) << p.name;
        }
        EXPECT_LT(last.losses.back(), last.losses.front());
    }
}

void expect_the_values_of(const Training& alone, const Training& together, double bound) {
    for (size_t step = 0; step < alone.losses.size(); ++step) {
        EXPECT_NEAR(together.losses[step], alone.losses[step], 2e-5) << step;
        EXPECT_NEAR(together.grad_norms[step], alone.grad_norms[step],
                    1e-4 * alone.grad_norms[step])
            << step;
    }
    EXPECT_LT(largest_difference(alone.gradients, together.gradients), bound);
}

TEST(AdapterTraining, OfRanksThatShareStagesIsThatOfOneRankPerStage) {
    for (const char* family : kFamilies) {
        for (const auto& [schedule, mesh] :
             {std::pair{"1f1b", Mesh{.pipeline = 1, .tensor = 2}},
              std::pair{"zb-h1", Mesh{.pipeline = 2, .tensor = 2}},
              std::pair{"zb-h1", Mesh{.pipeline = 1, .data = 2, .tensor = 2}},
              std::pair{"1f1b", Mesh{.pipeline = 1, .tensor = 4}}}) {
            const bool whole_heads = std::string(family) != "gpt_neox";  // which has two
            if (mesh.tensor == 4 && !whole_heads) continue;
            SCOPED_TRACE(std::string(family) + " " + schedule + " t " +
                         std::to_string(mesh.tensor));
            TrainingSetup setup = adapted(
                tensor_setup(schedule, VocabMode::one_barrier, mesh, family, DType::fp32, 3));
            setup.tensor_pieces = 2;
            const Training together = train_on_threads(setup);
            EXPECT_EQ(first_difference(together, train_on_threads(setup)), "");
            setup.tensor = 1;
            expect_the_values_of(train_on_threads(setup), together, 2e-3);
        }
    }
}

TEST(AdapterTraining, OfReplicasAndContextRanksIsThatOfOnePipeline) {
    for (const char* schedule : {"1f1b", "zb-h1"}) {
        TrainingSetup replicas = adapted(tensor_setup(
            schedule, VocabMode::one_barrier, {.pipeline = 2, .data = 2}, "llama", DType::fp32, 3));
        const Training together = train_on_threads(replicas);
        replicas.microbatches *= replicas.replicas;
        replicas.replicas = 1;
        expect_the_values_of(train_on_threads(replicas), together, 2e-3);
        TrainingSetup context =
            adapted(context_setup(schedule, VocabMode::one_barrier, {.pipeline = 2, .context = 2},
                                  "llama", DType::fp32, 3));
        const Training shared = train_on_threads(context);
        context.context = 1;
        expect_the_values_of(train_on_threads(context), shared, 2e-3);
    }
}

TEST(AdapterTraining, OfAModelWithExpertsIsThatOfOneRank) {
    TrainingSetup setup = pipeline_setup("mixtral", "1f1b", 1);
    const Training expected = train_on_threads(setup);
    setup.family = "zb-h1";
    setup.ranks = 2;
    EXPECT_EQ(first_difference(expected, train_on_threads(setup)), "");
}

TEST(AdapterTraining, OfRanksThatShareExpertsIsThatOfRanksThatDoNot) {
    TrainingSetup setup =
        adapted(expert_setup("zb-h1", VocabMode::one_barrier,
                             {.pipeline = 2, .data = 2, .expert = 2}, "mixtral", DType::fp32, 3));
    const Training together = train_on_threads(setup);
    setup.expert = 1;
    expect_the_values_of(train_on_threads(setup), together, 2e-3);
}

TEST(AdapterTraining, HasGradientsAndMomentsOfAdaptersOnly) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        ModelConfig config = with_adapters(small_family("llama", 2, 7, 29, false), 4, 8);
        config.dtype = dtype;
        const Schedule alone = one_rank_schedule(config);
        ModelPartition partition{.layers_per_stage = {2}};
        partition.frozen = frozen_parameters({}, logical_parameters(config));
        uint64_t adapters = 0;
        const auto aligned = [](int64_t elements) {  // tensors begin at cache lines
            return static_cast<uint64_t>((elements * 4 + 63) / 64 * 64);
        };
        for (const LogicalParameter& p : logical_parameters(config)) {
            if (p.adapter) adapters += aligned(p.rows * p.cols);
        }
        const PersistentBytes bytes = persistent_bytes(config, partition, alone, 0);
        EXPECT_EQ(bytes.gradients, adapters);
        EXPECT_EQ(bytes.optimizer, (dtype == DType::fp32 ? 2 : 3) * adapters);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
