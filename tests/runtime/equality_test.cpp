// SPDX-License-Identifier: Apache-2.0
// Loss and every gradient of a pipelined run equal those of the single-rank oracle, bit for bit.
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/generate.hpp"

#include <gtest/gtest.h>

namespace vocabpipe::testing {
namespace {

GptConfig tiny(int num_layers, int64_t vocab_size, DType dtype, bool tied) {
    GptConfig config;
    config.num_layers = num_layers;
    config.hidden_size = 16;
    config.ffn_hidden_size = 32;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 6;
    config.vocab_size = vocab_size;
    config.dtype = dtype;
    config.tied = tied;
    config.init_std = 0.3F;  // gradients of every tensor well away from zero
    return config;
}

struct Case {
    std::string schedule;
    VocabMode mode;
    int ranks;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
    std::string name = info.param.schedule == "1f1b" ? "OneFOneB" : "GPipe";
    return name + "_" + std::string(to_string(info.param.mode)) + "_p" +
           std::to_string(info.param.ranks);
}

class Equality : public ::testing::TestWithParam<Case> {};

TEST_P(Equality, LossAndGradientsHaveTheBitsOfTheSingleRankOracle) {
    const auto& [name, mode, p] = GetParam();
    std::set<int> sizes{1, 2, p - 1, p, 2 * p + 1};
    sizes.erase(0);
    World world = World::threads(p, {.timeout_seconds = 30});
    for (const int m : sizes) {
        for (const int64_t vocab_size : {int64_t{48}, int64_t{53}}) {
            const bool tied = false;
            const GptConfig config = tiny(std::max(2, p), vocab_size, DType::fp32, tied);
            const Schedule schedule = generate(
                name,
                {.ranks = p, .microbatches = m, .vocab_mode = mode, .vocab_size = vocab_size});
            const GptPartition partition = even_partition(config, schedule, 2);
            const Batch batch = random_batch(config, m, 2, static_cast<uint32_t>(m));
            const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
            const Gradients actual = run_pipeline(world, config, partition, schedule, batch, 7);
            ASSERT_EQ(first_difference(expected, actual), "")
                << name << " " << to_string(mode) << " p=" << p << " m=" << m
                << " V=" << vocab_size;
        }
    }
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const char* schedule : {"1f1b", "gpipe"}) {
        for (const VocabMode mode :
             {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
              VocabMode::one_barrier, VocabMode::two_barriers}) {
            for (const int p : {1, 2, 3, 4, 8}) all.push_back({schedule, mode, p});
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Threads, Equality, ::testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace vocabpipe::testing
