// SPDX-License-Identifier: Apache-2.0
// Loss and every gradient of a pipelined run equal those of the single-rank oracle, bit for bit;
// and runs that only differ in when things happen equal each other.
#include "tests/support/full_run.hpp"
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <span>

namespace vocabpipe::testing {
namespace {

ModelConfig tiny(int num_layers, int64_t vocab_size, DType dtype, bool tied) {
    return tiny_gpt(num_layers, {.vocab_size = vocab_size, .dtype = dtype, .tied = tied});
}

constexpr std::array kMatrixRanks{1, 2, 3, 4, 8};

World threads(int ranks) {
    return World::threads(ranks, {.timeout_seconds = 30});
}

/// Everything a run depends on.
struct RunSetup {
    ModelConfig config;
    std::string family = "1f1b";
    ScheduleOptions generate{};  ///< vocab_size is filled in
    int64_t sequences = 2;
    PipelineOptions run{};

    [[nodiscard]] Schedule schedule() const {
        ScheduleOptions options = generate;
        options.vocab_size = config.vocab_size;
        return vocabpipe::make_schedule(family, options);
    }
    [[nodiscard]] Batch batch() const {
        return random_batch(config, generate.microbatches, sequences,
                            static_cast<uint32_t>(generate.microbatches));
    }
};

std::vector<std::string> families() {
    std::vector<std::string> names;
    for (const Generator& family : generators()) names.emplace_back(family.name);
    return names;
}

/// Whether a test is left out: of products over all families the fast run takes every third.
bool skipped(size_t turn) {
    return !full_run() && turn % 3 != 0;
}

Gradients pipeline(const RunSetup& s, const Schedule& schedule) {
    World world = threads(schedule.ranks);
    return run_pipeline(world, s.config, even_partition(s.config, schedule, s.sequences), schedule,
                        s.batch(), 7, s.run);
}
Gradients pipeline(const RunSetup& s) {
    return pipeline(s, s.schedule());
}

Gradients oracle(const RunSetup& s, const Schedule& schedule) {
    return run_single_rank(s.config, even_partition(s.config, schedule, s.sequences), schedule,
                           s.batch(), 7);
}

/// Gradients that are all 0, or NaN, would be equal, too.
void expect_something_to_compare(const Gradients& g) {
    ASSERT_FALSE(g.losses.empty());
    for (const double loss : g.losses) EXPECT_TRUE(std::isfinite(loss));
    for (const auto& [name, values] : g.by_name) {
        double norm = 0;
        for (const float v : values) norm += static_cast<double>(v) * v;
        EXPECT_TRUE(std::isfinite(norm) && norm > 0) << name;
    }
}

void expect_oracle_bits(const RunSetup& s, const Schedule& schedule) {
    const Gradients expected = oracle(s, schedule);
    expect_something_to_compare(expected);
    EXPECT_EQ(first_difference(expected, pipeline(s, schedule)), "");
}

// --- the matrix: family x mode x p, over m, chunks, V, types, tying and losses
// -----------------------------

class Equality : public ::testing::TestWithParam<ScheduleCase> {};

TEST_P(Equality, LossAndGradientsHaveTheBitsOfTheSingleRankOracle) {
    const ScheduleCase& c = GetParam();
    for (const StepCase& step : step_cases(c, c.ranks <= 4 ? 5 : 2)) {
        SCOPED_TRACE(::testing::Message() << step);
        const Schedule schedule = schedule_of(c, step);
        // One layer too few and one too many for the stages, in turn: stages without layers.
        const int layers = std::max(1, schedule.stages + (step.microbatches % 2 == 0 ? 1 : -1));
        RunSetup s{.config = tiny_gpt(layers, step),
                   .family = c.family,
                   .generate = {.ranks = c.ranks, .microbatches = step.microbatches},
                   .sequences = step.sequences};
        expect_oracle_bits(s, schedule);
        if (HasFailure()) return;
    }
}

TEST_P(Equality, DepthsOfMultiTokenPredictionHaveTheBitsOfTheSingleRankOracle) {
    const ScheduleCase& c = GetParam();
    for (const StepCase& step : step_cases(c, 1)) {
        SCOPED_TRACE(::testing::Message() << step);
        const Schedule schedule = schedule_of(c, step);
        const int depths = c.turn % 3 == 0 ? 2 : 1;
        const RunSetup s{.config = tiny_predicting(schedule.stages, step, depths),
                         .family = c.family,
                         .generate = {.ranks = c.ranks, .microbatches = step.microbatches},
                         .sequences = step.sequences};
        expect_oracle_bits(s, schedule);
        EXPECT_EQ(oracle(s, schedule).depth_losses.size(),
                  static_cast<size_t>(depths * step.microbatches));
    }
}

TEST_P(Equality, EvaluationHasTheLossesOfTrainingAndTouchesNoGradient) {
    const ScheduleCase& c = GetParam();
    for (const StepCase& step : step_cases(c, 1)) {
        SCOPED_TRACE(::testing::Message() << step);
        RunSetup s{.config = tiny_gpt(3, step),
                   .family = c.family,
                   .generate = {.ranks = c.ranks,
                                .microbatches = step.microbatches,
                                .vocab_mode = c.mode,
                                .rule = {.chunks = step.chunks}},
                   .sequences = step.sequences};
        const Gradients training = pipeline(s);
        ASSERT_EQ(training.losses.size(), static_cast<size_t>(step.microbatches));
        const Schedule trained = s.schedule();
        s.generate.forward_only = true;
        // As a family makes it, and what is left of the training's order.
        for (const Schedule& schedule : {s.schedule(), evaluation_schedule(trained)}) {
            ASSERT_TRUE(schedule.forward_only());
            const Gradients evaluation = pipeline(s, schedule);
            ASSERT_EQ(training.losses, evaluation.losses);
            for (const auto& [name, values] : evaluation.by_name) {
                ASSERT_EQ(std::count(values.begin(), values.end(), 0.0F),
                          static_cast<int64_t>(values.size()))
                    << name;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, Equality, ::testing::ValuesIn(every_schedule(kMatrixRanks)),
                         [](const auto& info) { return test_name(info.param); });

// --- shard maps
// -----------------------------------------------------------------------------------

/// Replaces the shard maps and drops the passes of ranks that hold nothing any more.
Schedule resharded(Schedule schedule, const ShardMap& input, const ShardMap& output) {
    schedule.input = input;
    schedule.output = output;
    for (size_t rank = 0; rank < schedule.passes.size(); ++rank) {
        std::erase_if(schedule.passes[rank], [&](const Pass& pass) {
            const int r = static_cast<int>(rank);
            if (pass.op == Op::E || pass.op == Op::G) return input.rows(r) == 0;
            if (pass.op == Op::S || pass.op == Op::T) return output.rows(r) == 0;
            return false;
        });
    }
    return schedule;
}

class ShardMaps : public ::testing::TestWithParam<VocabMode> {};

TEST_P(ShardMaps, UnevenAndEmptyShardsHaveTheBitsOfTheOracle) {
    const std::vector<ShardMap> maps{{{0, 1, 30, 31, 53}},
                                     {{0, 0, 53, 53, 53}},
                                     {{0, 20, 20, 53, 53}},
                                     {{0, 0, 0, 0, 53}},
                                     {{0, 53, 53, 53, 53}}};
    size_t turn = 0;
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const std::string& family : families()) {
            for (const ShardMap& map : maps) {
                for (const bool tied : {false, true}) {
                    if (skipped(turn++)) continue;
                    SCOPED_TRACE(family);
                    RunSetup s{
                        .config = tiny(4, 53, dtype, tied),
                        .family = family,
                        .generate = {.ranks = 4, .microbatches = 6, .vocab_mode = GetParam()}};
                    s.config.label_smoothing = 0.1F;
                    expect_oracle_bits(s, resharded(s.schedule(), map, map));
                    if (HasFailure()) return;
                }
            }
        }
    }
}

TEST_P(ShardMaps, InputAndOutputMayBeShardedDifferently) {
    const RunSetup s{.config = tiny(4, 53, DType::fp32, false),
                     .generate = {.ranks = 4, .microbatches = 6, .vocab_mode = GetParam()}};
    expect_oracle_bits(s, resharded(s.schedule(), {{0, 1, 30, 31, 53}}, {{0, 20, 20, 53, 53}}));
    expect_oracle_bits(s, resharded(s.schedule(), {{0, 20, 20, 53, 53}}, {{0, 13, 26, 39, 53}}));
}

INSTANTIATE_TEST_SUITE_P(Threads, ShardMaps, ::testing::ValuesIn(kShardedModes),
                         [](const auto& info) { return test_name(to_string(info.param)); });

// --- what bits do not depend on
// -----------------------------------------------------------------------

/// The order in which weight gradients are added up: microbatches of B and W per stage, of T and G
/// per rank. Bits are promised to be the same where this is the same.
std::map<std::pair<char, int>, std::vector<uint32_t>> accumulation_order(const Schedule& schedule) {
    std::map<std::pair<char, int>, std::vector<uint32_t>> order;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        for (const Pass& pass : schedule.passes[static_cast<size_t>(rank)]) {
            const bool weight = pass.op == Op::B || pass.op == Op::W;
            if (weight) order[{'W', pass.stage}].push_back(pass.microbatch);
            if (pass.op == Op::T) order[{'T', rank}].push_back(pass.microbatch);
            if (pass.op == Op::G) order[{'G', rank}].push_back(pass.microbatch);
        }
    }
    return order;
}

bool accumulates_in_order(const Schedule& schedule) {
    const auto order = accumulation_order(schedule);
    return std::all_of(order.begin(), order.end(), [](const auto& entry) {
        return std::is_sorted(entry.second.begin(), entry.second.end());
    });
}

class SameBits : public ::testing::TestWithParam<DType> {
protected:
    /// Tied, smoothed, z-loss: whatever has an order of its own.
    static RunSetup setup(int ranks, int microbatches, VocabMode mode) {
        RunSetup s{.config = tiny(8, 53, GetParam(), true),
                   .generate = {.ranks = ranks, .microbatches = microbatches, .vocab_mode = mode}};
        s.config.label_smoothing = 0.1F;
        s.config.z_loss = 0.01F;
        return s;
    }

    /// Runs `family` in every one of `modes`; those that accumulate in order of microbatches must
    /// have the expected bits. Families that were compared are noted.
    void expect_same_bits(const Gradients& expected, RunSetup s, std::span<const VocabMode> modes) {
        for (const std::string& family : families()) {
            for (const VocabMode mode : modes) {
                if (skipped(turn_++)) continue;
                s.family = family;
                s.generate.vocab_mode = mode;
                const Schedule schedule = s.schedule();
                if (!accumulates_in_order(schedule)) continue;
                compared_.insert(family);
                EXPECT_EQ(first_difference(expected, pipeline(s, schedule)), "")
                    << family << " " << to_string(mode) << " p=" << schedule.ranks;
            }
        }
    }

    /// 1F1B and GPipe are among them, or orders are read wrongly.
    void expect_compared() const {
        EXPECT_TRUE(compared_.contains("1f1b") && compared_.contains("gpipe"));
    }

private:
    size_t turn_ = 0;
    std::set<std::string> compared_;
};

TEST_P(SameBits, AcrossSchedulesAndBarriersForTheSameShardsAndOrder) {
    for (const int p : kMatrixRanks) {
        const int m = 2 * p + 1;
        const Gradients expected = pipeline(setup(p, m, VocabMode::one_barrier));
        expect_something_to_compare(expected);
        expect_same_bits(expected, setup(p, m, VocabMode::one_barrier), kShardedModes);
    }
    expect_compared();
}

TEST_P(SameBits, ForAnyNumberOfRanksWithoutSharding) {
    const Gradients expected = pipeline(setup(1, 9, VocabMode::none));
    expect_something_to_compare(expected);
    for (const int p : kMatrixRanks) {
        expect_same_bits(expected, setup(p, 9, VocabMode::none),
                         std::array{VocabMode::none, VocabMode::redistributed});
    }
    expect_compared();
}

TEST_P(SameBits, ForAnySplitOfTheLayersOverTheRanks) {
    const RunSetup s = setup(3, 5, VocabMode::one_barrier);
    const Schedule schedule = s.schedule();
    World world = threads(3);
    const Gradients expected = pipeline(s, schedule);
    for (const auto& layers : {std::vector<int>{6, 1, 1},
                               {1, 7, 0},
                               {4, 4, 0},
                               {0, 4, 4},
                               {8, 0, 0},
                               {0, 8, 0},
                               {0, 0, 8}}) {
        ModelPartition partition = even_partition(s.config, schedule, s.sequences);
        partition.layers_per_stage = layers;
        EXPECT_EQ(first_difference(expected, run_pipeline(world, s.config, partition, schedule,
                                                          s.batch(), 7, s.run)),
                  "")
            << layers[0] << " " << layers[1] << " " << layers[2];
    }
}

TEST_P(SameBits, WhenTheStepIsRunAgain) {
    for (const VocabMode mode : kEveryVocabMode) {
        RunSetup s = setup(4, 6, mode);
        const Gradients once = pipeline(s);
        s.run.steps = 2;
        EXPECT_EQ(first_difference(once, pipeline(s)), "") << to_string(mode);
    }
}

TEST_P(SameBits, ForOrdersBuiltFromOtherCosts) {
    struct Costs {
        int64_t forward, backward, margin, latency_ns;
    };
    constexpr std::array<Costs, 6> kCosts{{{1, 1, 0, 10},
                                           {1, 3, 0, 10},
                                           {10, 23, 4, 10},
                                           {3, 5, 2, 100000},
                                           {1, 2, 0, 0},
                                           {5, 1, 0, 10}}};
    size_t turn = 0;
    for (const std::string& family : families()) {
        for (const VocabMode mode : kEveryVocabMode) {
            RunSetup s = setup(4, 9, mode);
            s.family = family;
            const Schedule schedule = s.schedule();
            const Gradients expected = pipeline(s, schedule);
            for (const Costs& c : kCosts) {
                if (skipped(turn++)) continue;
                RunSetup other = s;
                other.generate.costs = PassCosts::uniform(c.forward, c.backward, 1);
                other.generate.rule.broadcast_margin = c.margin;
                const Schedule reordered = other.schedule();
                if (accumulation_order(reordered) != accumulation_order(schedule)) continue;
                other.run.costs =
                    TableCosts::uniform(4, reordered.stages, 100 * c.forward, 100 * c.backward, 70);
                other.run.costs.latency_ns = c.latency_ns;
                other.run.costs.bytes_per_ns = c.latency_ns > 0 ? 0.5 : 0;
                EXPECT_EQ(first_difference(expected, pipeline(other, reordered)), "")
                    << family << " " << to_string(mode) << " " << c.forward << ":" << c.backward
                    << " margin " << c.margin << " latency " << c.latency_ns;
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, SameBits, ::testing::Values(DType::fp32, DType::bf16),
                         [](const auto& info) {
                             return info.param == DType::bf16 ? "Bf16" : "Fp32";
                         });

TEST(DifferentNumbersOfShards, ChangeOnlyTheLastDigits) {
    // Another p sums dX over other shards and subtracts other local maxima: every sum keeps its u =
    // 2^-24 per addend. As in tests/model/oracle_test.cpp, 5e-6 of a tensor's norm against exact
    // arithmetic, and twice that between two runs. Measured: 1.3e-6.
    const auto setup = [](int p) {
        RunSetup s{.config = tiny(8, 53, DType::fp32, false),
                   .generate = {.ranks = p,
                                .microbatches = 5,
                                .vocab_mode = p == 1 ? VocabMode::none : VocabMode::one_barrier}};
        s.config.label_smoothing = 0.1F;
        return s;
    };
    const Gradients expected = pipeline(setup(1));
    double worst = 0;
    for (const int p : {2, 3, 4, 8}) {
        const Gradients actual = pipeline(setup(p));
        for (const auto& [name, want] : expected.by_name) {
            double error = 0;
            double norm = 0;
            for (size_t i = 0; i < want.size(); ++i) {
                const double e = actual.by_name.at(name)[i] - static_cast<double>(want[i]);
                error += e * e;
                norm += static_cast<double>(want[i]) * want[i];
            }
            worst = std::max(worst, std::sqrt(error / norm));
            EXPECT_LE(std::sqrt(error / norm), 1e-5) << name << " p=" << p;
        }
        for (size_t j = 0; j < expected.losses.size(); ++j) {
            EXPECT_NEAR(actual.losses[j], expected.losses[j], 2e-6) << p;
        }
    }
    std::cout << "worst tensor " << worst << "\n";
    EXPECT_GT(worst, 0) << "different p do not have equal bits, or this test compares p to itself";
}

}  // namespace
}  // namespace vocabpipe::testing
