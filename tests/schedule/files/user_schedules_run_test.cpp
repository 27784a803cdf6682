// SPDX-License-Identifier: Apache-2.0
// User-defined schedules train: their gradients have the bits of the single-rank oracle.
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/insert_vocabulary.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/user_schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace vocabpipe::testing {
namespace {

constexpr int64_t kRows = 53;

ModelConfig tiny(int stages) {
    ModelConfig config;
    config.num_layers = stages;
    config.hidden_size = 16;
    config.ffn_hidden_size = 32;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 6;
    config.vocab_size = kRows;
    config.dtype = DType::fp32;
    config.tied = false;     // the shards of the example differ
    config.init_std = 0.3F;  // gradients of every tensor well away from zero
    return config;
}

void expect_oracle_bits(const Schedule& schedule) {
    const ModelConfig config = tiny(schedule.stages);
    const Batch batch = random_batch(config, schedule.microbatches, 2, 1);
    const ModelPartition partition = even_partition(config, schedule, 2);
    const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
    for (const double loss : expected.losses) EXPECT_TRUE(std::isfinite(loss) && loss > 0);
    World world = World::threads(schedule.ranks, {.timeout_seconds = 30});
    EXPECT_EQ(
        first_difference(expected, run_pipeline(world, config, partition, schedule, batch, 7)), "");
}

void expect_oracle_bits_in_every_mode(const Schedule& base) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                 VocabMode::one_barrier, VocabMode::two_barriers}) {
        SCOPED_TRACE(to_string(mode));
        expect_oracle_bits(insert_vocabulary(base, {.mode = mode, .vocab_size = kRows}));
    }
}

TEST(UserSchedules, FromACsvTrainInEveryVocabMode) {
    expect_oracle_bits_in_every_mode(
        read_schedule(VOCABPIPE_EXAMPLE_SCHEDULES "/dualpipe_v.csv").schedule);
}

TEST(UserSchedules, FromJsonTrain) {
    expect_oracle_bits(read_schedule(VOCABPIPE_EXAMPLE_SCHEDULES "/uneven_shards.json").schedule);
}

// All forwards of a chunk, then the other chunk; backwards last to first; W where it comes.
TEST(UserSchedules, FromCodeTrainInEveryVocabMode) {
    using enum Op;
    std::vector<std::vector<Pass>> passes(2);
    for (uint16_t rank = 0; rank < 2; ++rank) {
        const auto upper = static_cast<uint16_t>(rank + 2);
        for (const uint16_t stage : {rank, upper}) {
            for (uint32_t j = 0; j < 3; ++j) passes[rank].push_back({F, stage, j});
        }
        for (const uint16_t stage : {upper, rank}) {
            for (uint32_t j = 3; j-- > 0;) {
                if (stage == upper) {
                    passes[rank].push_back({B, stage, j});
                    continue;
                }
                passes[rank].push_back({I, stage, j});
                if (j < 2) passes[rank].push_back({W, stage, j + 1});
            }
        }
        passes[rank].push_back({W, rank, 0});
    }
    expect_oracle_bits_in_every_mode(user_schedule(std::move(passes)));
}

}  // namespace
}  // namespace vocabpipe::testing
