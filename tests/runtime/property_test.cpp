// SPDX-License-Identifier: Apache-2.0
// Schedules that nobody designed, valid and broken: refused where an independent checker says so,
// else run on a world of threads, with the bits of the single-rank oracle. Nothing hangs: ranks
// that make no progress end with an error.
//
// VOCABPIPE_PROPERTY_CASES: schedules per property (default 5000, with sanitizers 1000).
#include "tests/support/brute_force_checker.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/validate.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr int kMostRanks = 4;
constexpr int kMostStages = 6;
constexpr int kMostMicrobatches = 5;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kCases = 1000;  // ten times slower
#else
constexpr int kCases = 5000;
#endif

int number_of_cases() {
    const char* text = std::getenv("VOCABPIPE_PROPERTY_CASES");
    return text == nullptr ? kCases : std::max(1, std::atoi(text));
}

/// Messages are small and passes short: this long without progress is a hang on any machine.
World& world_of(int ranks) {
    static std::vector<std::unique_ptr<World>> worlds(kMostRanks + 1);
    auto& world = worlds[static_cast<size_t>(ranks)];
    if (!world) world = std::make_unique<World>(World::threads(ranks, {.timeout_seconds = 30}));
    return *world;
}

ModelConfig tiny(int64_t vocab_size) {
    ModelConfig config;
    config.num_layers = 3;
    config.hidden_size = 8;
    config.ffn_hidden_size = 16;
    config.num_attention_heads = 2;
    config.seq_length = config.max_position_embeddings = 5;
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

Shape any_shape() {
    return {
        .ranks = *rc::gen::inRange(1, kMostRanks + 1).as("ranks"),
        .stages = *rc::gen::inRange(1, kMostStages + 1).as("stages"),
        .microbatches = *rc::gen::inRange(1, kMostMicrobatches + 1).as("microbatches"),
        .vocab_size = *rc::gen::inRange(1, 24).as("vocab_size"),
        .forward_only = *rc::gen::weightedElement<bool>({{7, false}, {1, true}}).as("forward_only"),
        .seed = *rc::gen::noShrink(rc::gen::arbitrary<uint32_t>()).as("seed")};
}

/// Empty if the run equals the oracle; errors of the run are faults, too.
std::string fault_of_run(const Schedule& schedule, uint32_t seed) {
    const ModelConfig config = tiny(schedule.output.vocab_size());
    const ModelPartition partition = even_partition(config, schedule, 1);
    const Batch batch = random_batch(config, schedule.microbatches, 1, seed);
    PipelineOptions options;
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

/// Sizes do not matter to a schedule that is refused.
bool is_refused(const Schedule& schedule) {
    try {
        (void)lower(schedule, {}, TableCosts{});
    } catch (const ScheduleError&) {
        return true;
    } catch (const UsageError&) {
        return false;  // about the sizes: the schedule itself has been accepted
    }
    return false;
}

class Property {
public:
    explicit Property(std::string what) : what_(std::move(what)) {}

    /// Runs `body` on cases until one fails.
    template <typename Body>
    void holds(const Body& body) {
        // RapidCheck takes its parameters from the environment; a fixed seed unless told otherwise.
        const std::string params = "max_success=" + std::to_string(number_of_cases()) +
                                   " seed=20240817 max_discard_ratio=0";
        setenv("RC_PARAMS", params.c_str(), 0);
        const bool ok = rc::check(what_, body);
        EXPECT_TRUE(ok) << what_ << ": see the counterexample above";
    }

private:
    std::string what_;
};

TEST(Property, ValidSchedulesGiveTheBitsOfTheSingleRank) {
    Property("a valid schedule runs and gives the oracle's bits").holds([] {
        const Shape shape = any_shape();
        std::mt19937 random(shape.seed);
        const Schedule schedule =
            random_schedule(random, shape.ranks, shape.stages, shape.microbatches, shape.vocab_size,
                            shape.forward_only);
        RC_LOG(describe(schedule));
        RC_ASSERT(brute_force_fault(schedule) == "");
        RC_ASSERT(!is_refused(schedule));
        RC_ASSERT(fault_of_run(schedule, shape.seed) == "");
    });
}

TEST(Property, MutatedSchedulesAreRefusedOrGiveTheBitsOfTheSingleRank) {
    int refused = 0;
    int run = 0;
    Property("a mutated schedule is refused or gives the oracle's bits").holds([&] {
        const Shape shape = any_shape();
        std::mt19937 random(shape.seed);
        Schedule schedule = random_schedule(random, shape.ranks, shape.stages, shape.microbatches,
                                            shape.vocab_size, shape.forward_only);
        const int mutations = *rc::gen::inRange(1, 4).as("mutations");
        for (int i = 0; i < mutations; ++i) {
            RC_LOG(mutate(schedule, random));
            const bool nothing_left = std::all_of(schedule.passes.begin(), schedule.passes.end(),
                                                  [](const auto& list) { return list.empty(); });
            if (nothing_left) break;
        }
        RC_LOG(describe(schedule));
        const std::string fault = brute_force_fault(schedule);
        RC_LOG("checker: " + fault);
        RC_ASSERT(is_refused(schedule) == !fault.empty());
        if (fault.empty()) {
            RC_ASSERT(fault_of_run(schedule, shape.seed) == "");
        }
        ++(fault.empty() ? run : refused);
    });
    std::printf("%d refused, %d run\n", refused, run);
    EXPECT_GT(refused, number_of_cases() / 10);
    EXPECT_GT(run, number_of_cases() / 10);
}

}  // namespace
}  // namespace vocabpipe::testing
