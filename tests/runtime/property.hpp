// SPDX-License-Identifier: Apache-2.0
// Random schedules that run on a world of threads, against the single-rank oracle.
#pragma once

#include "tests/support/number_of_cases.hpp"
#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/schedule.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe::testing {

inline constexpr int kMostRanks = 4;
inline constexpr int kMostStages = 6;
inline constexpr int kMostMicrobatches = 5;
inline constexpr int64_t kTokensOfSequence = 5;

/// Messages are small and passes short: this long without progress is a hang on any machine.
inline World& world_of(int ranks) {
    static std::vector<std::unique_ptr<World>> worlds(kMostRanks + 1);
    auto& world = worlds[static_cast<size_t>(ranks)];
    if (!world) world = std::make_unique<World>(World::threads(ranks, {.timeout_seconds = 30}));
    return *world;
}

inline ModelConfig tiny(int64_t vocab_size) {
    ModelConfig config;
    config.num_layers = 3;
    config.hidden_size = 8;
    config.ffn_hidden_size = 16;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = kTokensOfSequence;
    config.vocab_size = vocab_size;
    config.dtype = DType::fp32;
    config.tied = false;
    config.init_std = 0.3F;  // gradients of every tensor well away from zero
    return config;
}

/// What shrinks: RapidCheck looks for the smallest shape that still fails.
struct Shape {
    int ranks, stages, microbatches;
    int64_t vocab_size;
    bool forward_only;
    uint32_t seed;
};

inline Shape any_shape() {
    return {
        .ranks = *rc::gen::inRange(1, kMostRanks + 1).as("ranks"),
        .stages = *rc::gen::inRange(1, kMostStages + 1).as("stages"),
        .microbatches = *rc::gen::inRange(1, kMostMicrobatches + 1).as("microbatches"),
        .vocab_size = *rc::gen::inRange(1, 24).as("vocab_size"),
        .forward_only = *rc::gen::weightedElement<bool>({{7, false}, {1, true}}).as("forward_only"),
        .seed = *rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()).as("seed")};
}

/// Empty if the run of microbatches of so many sequences equals the oracle; errors of the run are
/// faults, too. The seed decides about steps and recomputation.
inline std::string fault_of_run(const Schedule& schedule, uint32_t seed, int64_t sequences = 1,
                                PipelineOptions options = {}) {
    const ModelConfig config = tiny(schedule.output.vocab_size());
    const ModelPartition partition = even_partition(config, schedule, sequences);
    const Batch batch = random_batch(config, schedule.microbatches, sequences, seed);
    options.poison = true;
    options.steps = 1 + static_cast<int>(seed % 2);
    try {
        const Gradients expected = run_single_rank(config, partition, schedule, batch, 7);
        ModelPartition recomputing = partition;  // where the schedule does
        recomputing.recompute = static_cast<Recompute>(seed / 2 % 3);
        Gradients actual = run_pipeline(world_of(schedule.ranks), config, recomputing, schedule,
                                        batch, 7, options);
        // Evaluation has losses only.
        if (schedule.forward_only()) actual.by_name = expected.by_name;
        return first_difference(expected, actual);
    } catch (const std::exception& error) {
        return error.what();
    }
}

/// What holds for random cases.
class Property {
public:
    Property(std::string what, int cases) : what_(std::move(what)), cases_(cases) {}

    /// Runs `body` on cases until one fails.
    template <typename Body>
    void holds(const Body& body) {
        // RapidCheck takes its parameters from the environment, once: properties of a program have
        // the same number of cases. A fixed seed unless told otherwise.
        const std::string params =
            "max_success=" + std::to_string(cases_) + " seed=20240817 max_discard_ratio=0";
        setenv("RC_PARAMS", params.c_str(), 0);
        const bool ok = rc::check(what_, body);
        EXPECT_TRUE(ok) << what_ << ": see the counterexample above";
    }

private:
    std::string what_;
    int cases_;
};

}  // namespace vocabpipe::testing
