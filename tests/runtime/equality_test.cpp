// SPDX-License-Identifier: Apache-2.0
// Loss and every gradient of a pipelined run equal those of the single-rank oracle, bit for bit;
// and runs that only differ in when things happen equal each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <ostream>
#include <set>

#include "tests/support/pipeline_run.hpp"
#include "vocabpipe/generate.hpp"

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

constexpr std::array kModes{VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                            VocabMode::one_barrier, VocabMode::two_barriers};
constexpr std::array kSharded{VocabMode::interlaced, VocabMode::one_barrier,
                              VocabMode::two_barriers};
constexpr std::array kFamilies{"1f1b", "gpipe"};

World threads(int ranks) {
    return World::threads(ranks, {.timeout_seconds = 30});
}

/// Everything a run depends on.
struct RunSetup {
    GptConfig config;
    std::string family = "1f1b";
    GenerateOptions generate{};  ///< vocab_size is filled in
    int64_t sequences = 2;
    PipelineOptions run{};

    [[nodiscard]] Schedule schedule() const {
        GenerateOptions options = generate;
        options.vocab_size = config.vocab_size;
        return vocabpipe::generate(family, options);
    }
    [[nodiscard]] Batch batch() const {
        return random_batch(config, generate.microbatches, sequences,
                            static_cast<uint32_t>(generate.microbatches));
    }
};

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

std::string mode_name(VocabMode mode) {
    std::string name;
    bool upper = true;
    for (const char c : to_string(mode)) {
        if (c == '_') {
            upper = true;
            continue;
        }
        name += upper ? static_cast<char>(std::toupper(c)) : c;
        upper = false;
    }
    return name;
}
std::string family_name(const std::string& family) {
    return family == "1f1b" ? "OneFOneB" : "GPipe";
}

// --- the matrix: schedule x mode x p, over m, V, types, tying and losses
// -----------------------------

struct Case {
    std::string family;
    VocabMode mode;
    int ranks;
    friend void PrintTo(const Case& c, std::ostream* out) {
        *out << c.family << " " << to_string(c.mode) << " p=" << c.ranks;
    }
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
    return family_name(info.param.family) + "_" + mode_name(info.param.mode) + "_p" +
           std::to_string(info.param.ranks);
}

std::vector<Case> cases(std::initializer_list<int> ranks) {
    std::vector<Case> all;
    for (const char* family : kFamilies) {
        for (const VocabMode mode : kModes) {
            for (const int p : ranks) all.push_back({family, mode, p});
        }
    }
    return all;
}

class Equality : public ::testing::TestWithParam<Case> {
protected:
    /// Over all microbatch counts and vocabulary sizes.
    void expect_equality(DType dtype, bool tied, float label_smoothing, float z_loss,
                         int64_t sequences, std::initializer_list<int64_t> vocabularies = {53, 3}) {
        const auto& [family, mode, p] = GetParam();
        std::set<int> counts{1, 2, p - 1, p, 2 * p + 1};
        counts.erase(0);
        for (const int m : counts) {
            for (const int64_t vocab_size : vocabularies) {
                RunSetup s{.config = tiny(std::max(2, p), vocab_size, dtype, tied),
                           .family = family,
                           .generate = {.ranks = p, .microbatches = m, .vocab_mode = mode},
                           .sequences = sequences};
                s.config.label_smoothing = label_smoothing;
                s.config.z_loss = z_loss;
                SCOPED_TRACE("m=" + std::to_string(m) + " V=" + std::to_string(vocab_size));
                expect_oracle_bits(s, s.schedule());
                if (HasFailure()) return;
            }
        }
    }
};

TEST_P(Equality, LossAndGradientsHaveTheBitsOfTheSingleRankOracle) {
    expect_equality(DType::fp32, false, 0, 0, 2, {48, 53, 3});
}

TEST_P(Equality, HoldsInBf16) {
    expect_equality(DType::bf16, false, 0, 0, 2);
}

TEST_P(Equality, HoldsWithTiedEmbeddings) {
    expect_equality(DType::fp32, true, 0, 0, 1);
}

TEST_P(Equality, HoldsWithLabelSmoothingAndZLoss) {
    expect_equality(DType::fp32, false, 0.1F, 0.01F, 3);
}

TEST_P(Equality, HoldsInBf16TiedWithLabelSmoothingAndZLoss) {
    expect_equality(DType::bf16, true, 0.1F, 0.01F, 3);
}

INSTANTIATE_TEST_SUITE_P(Threads, Equality, ::testing::ValuesIn(cases({1, 2, 3, 4, 8})), name_of);

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
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const char* family : kFamilies) {
            for (const ShardMap& map : maps) {
                for (const bool tied : {false, true}) {
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

INSTANTIATE_TEST_SUITE_P(Threads, ShardMaps, ::testing::ValuesIn(kSharded),
                         [](const auto& info) { return mode_name(info.param); });

// --- what bits do not depend on
// -----------------------------------------------------------------------

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
};

TEST_P(SameBits, AcrossSchedulesAndBarriersForTheSameShards) {
    for (const int p : {1, 2, 3, 4, 8}) {
        const int m = 2 * p + 1;
        const Gradients expected = pipeline(setup(p, m, VocabMode::one_barrier));
        expect_something_to_compare(expected);
        for (const char* family : kFamilies) {
            for (const VocabMode mode : kSharded) {
                RunSetup s = setup(p, m, mode);
                s.family = family;
                EXPECT_EQ(first_difference(expected, pipeline(s)), "")
                    << family << " " << to_string(mode) << " p=" << p;
            }
        }
    }
}

TEST_P(SameBits, ForAnyNumberOfRanksWithoutSharding) {
    const Gradients expected = pipeline(setup(1, 9, VocabMode::none));
    expect_something_to_compare(expected);
    for (const char* family : kFamilies) {
        for (const VocabMode mode : {VocabMode::none, VocabMode::redistributed}) {
            for (const int p : {1, 2, 3, 4, 8}) {
                RunSetup s = setup(p, 9, mode);
                s.family = family;
                EXPECT_EQ(first_difference(expected, pipeline(s)), "")
                    << family << " " << to_string(mode) << " p=" << p;
            }
        }
    }
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
        GptPartition partition = even_partition(s.config, schedule, s.sequences);
        partition.layers_per_stage = layers;
        EXPECT_EQ(first_difference(expected, run_pipeline(world, s.config, partition, schedule,
                                                          s.batch(), 7, s.run)),
                  "")
            << layers[0] << " " << layers[1] << " " << layers[2];
    }
}

TEST_P(SameBits, WhenTheStepIsRunAgain) {
    for (const VocabMode mode : kModes) {
        RunSetup s = setup(4, 6, mode);
        const Gradients once = pipeline(s);
        s.run.steps = 2;
        EXPECT_EQ(first_difference(once, pipeline(s)), "") << to_string(mode);
    }
}

TEST_P(SameBits, ForOrdersBuiltFromOtherCosts) {
    for (const char* family : kFamilies) {
        for (const VocabMode mode : kModes) {
            RunSetup s = setup(4, 9, mode);
            s.family = family;
            const Gradients expected = pipeline(s);
            struct Costs {
                int64_t forward, backward, margin, latency_ns;
            };
            for (const Costs& c : {Costs{1, 1, 0, 10},
                                   {1, 3, 0, 10},
                                   {10, 23, 4, 10},
                                   {3, 5, 2, 100000},
                                   {1, 2, 0, 0},
                                   {5, 1, 0, 10}}) {
                RunSetup other = s;
                other.generate.costs = PassCosts::uniform(c.forward, c.backward, 1);
                other.generate.c0_margin = c.margin;
                other.run.costs = TableCosts::uniform(4, 4, 100 * c.forward, 100 * c.backward, 70);
                other.run.costs.latency_ns = c.latency_ns;
                other.run.costs.bytes_per_ns = c.latency_ns > 0 ? 0.5 : 0;
                EXPECT_EQ(first_difference(expected, pipeline(other)), "")
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

// --- evaluation
// -----------------------------------------------------------------------------------

TEST(Evaluation, HasTheLossesOfTrainingBitForBitAndTouchesNoGradient) {
    for (const DType dtype : {DType::fp32, DType::bf16}) {
        for (const char* family : kFamilies) {
            for (const VocabMode mode : kModes) {
                for (const int p : {1, 2, 3, 4, 8}) {
                    for (const bool tied : {false, true}) {
                        RunSetup s{.config = tiny(8, 53, dtype, tied),
                                   .family = family,
                                   .generate = {.ranks = p, .microbatches = 5, .vocab_mode = mode}};
                        s.config.label_smoothing = 0.1F;
                        s.config.z_loss = 0.01F;
                        const Gradients training = pipeline(s);
                        s.generate.forward_only = true;
                        ASSERT_TRUE(s.schedule().forward_only());
                        const Gradients evaluation = pipeline(s);
                        EXPECT_EQ(training.losses, evaluation.losses)
                            << family << " " << to_string(mode) << " p=" << p;
                        for (const auto& [name, values] : evaluation.by_name) {
                            EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F),
                                      static_cast<int64_t>(values.size()))
                                << name;
                        }
                    }
                }
            }
        }
    }
}

TEST(Evaluation, OfFewerRowsThanRanksHasTheLossesOfTraining) {
    for (const VocabMode mode : kModes) {
        RunSetup s{.config = tiny(4, 3, DType::fp32, false),
                   .generate = {.ranks = 4, .microbatches = 5, .vocab_mode = mode}};
        const Gradients training = pipeline(s);
        s.generate.forward_only = true;
        EXPECT_EQ(training.losses, pipeline(s).losses) << to_string(mode);
    }
}

}  // namespace
}  // namespace vocabpipe::testing
