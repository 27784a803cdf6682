// SPDX-License-Identifier: Apache-2.0
// Every model family through pipelines, with and without recomputation: the bits of the single-rank
// oracle, which keeps everything.
#include "tests/model/model_cases.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// A full backward, split backwards, V placement, several stages per rank.
constexpr std::array kSchedules{"1f1b", "zb-h1", "v-half", "interleaved"};

struct Cell {
    std::string model;
    std::string schedule;
    friend void PrintTo(const Cell& c, std::ostream* out) { *out << c.model << " " << c.schedule; }
};

std::vector<Cell> cells() {
    std::vector<Cell> all;
    for (const std::string& model : model_families()) {
        for (const char* schedule : kSchedules) all.push_back({model, schedule});
    }
    return all;
}

class ModelFamilies : public ::testing::TestWithParam<Cell> {};

TEST_P(ModelFamilies, PipelinesHaveTheBitsOfTheSingleRankOracle) {
    const auto& [family, schedule_name] = GetParam();
    size_t turn = 0;
    for (const int ranks : {1, 2, 3}) {
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::one_barrier, VocabMode::two_barriers}) {
            for (const DType dtype : {DType::fp32, DType::bf16}) {
                // Each granularity with each mode, type and number of ranks in turn.
                const std::array granularities{Recompute::none, Recompute::selective,
                                               Recompute::full};
                const Recompute recompute = granularities[turn++ % granularities.size()];
                SCOPED_TRACE(::testing::Message()
                             << "p=" << ranks << " " << to_string(mode) << " " << size_of(dtype)
                             << " bytes, recompute " << static_cast<int>(recompute));
                Schedule schedule = make_schedule(
                    schedule_name,
                    {.ranks = ranks, .microbatches = 4, .vocab_mode = mode, .vocab_size = 29});
                ModelConfig config =
                    small_family(family, schedule.stages + 1, 7, 29, turn % 2 == 0);
                config.dtype = dtype;
                const Batch batch = random_batch(config, 4, 2, 3);
                ModelPartition partition = even_partition(config, schedule, 2);
                const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
                for (const double loss : expected.losses) ASSERT_TRUE(std::isfinite(loss));

                partition.recompute = recompute;
                if (recompute != Recompute::none) schedule = with_recomputation(schedule);
                World world = World::threads(ranks, {.timeout_seconds = 30});
                EXPECT_EQ(first_difference(expected, run_pipeline(world, config, partition,
                                                                  schedule, batch, 7, {})),
                          "");
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Cells, ModelFamilies, ::testing::ValuesIn(cells()), [](const auto& info) {
    return test_name(info.param.model + "_" + info.param.schedule);
});

/// First stages see their documents from F, others' R and I too, whatever they kept.
TEST(ModelFamiliesWithDocuments, PipelinesHaveTheBitsOfTheSingleRankOracle) {
    size_t turn = 0;
    for (const char* const family : {"gpt2", "qwen3", "gemma2"}) {
        for (const char* schedule_name : {"1f1b", "zb-h1"}) {
            for (const Recompute recompute : {Recompute::selective, Recompute::full}) {
                const int ranks = 2 + static_cast<int>(turn % 2);
                const DType dtype = turn / 2 % 2 == 0 ? DType::fp32 : DType::bf16;
                ++turn;
                SCOPED_TRACE(::testing::Message()
                             << family << " " << schedule_name << " p=" << ranks << " "
                             << size_of(dtype) << " bytes, recompute "
                             << static_cast<int>(recompute));
                Schedule schedule =
                    make_schedule(schedule_name, {.ranks = ranks,
                                                  .microbatches = 4,
                                                  .vocab_mode = VocabMode::one_barrier,
                                                  .vocab_size = 29});
                ModelConfig config = small_family(family, schedule.stages + 1, 7, 29, false);
                config.dtype = dtype;
                Batch batch = random_batch(config, 4, 2, 3);
                ModelPartition partition = even_partition(config, schedule, 2);
                const Gradients without = run_single_rank(config, partition, schedule, batch, 7);
                cut_into_documents(batch, 5);
                const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
                EXPECT_NE(expected.losses, without.losses) << "no mask arrived";

                partition.recompute = recompute;
                schedule = with_recomputation(schedule);
                World world = World::threads(ranks, {.timeout_seconds = 30});
                EXPECT_EQ(first_difference(expected, run_pipeline(world, config, partition,
                                                                  schedule, batch, 7, {})),
                          "");
            }
        }
    }
}

}  // namespace
}  // namespace vocabpipe::testing
