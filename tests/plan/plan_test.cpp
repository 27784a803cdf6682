// SPDX-License-Identifier: Apache-2.0
// Whole plans: both evaluations agree, the order is deterministic, sharding keeps MFU flat.
#include "vocabpipe/plan.hpp"

#include "src/plan/candidates.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

constexpr VocabMode kModes[] = {VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                                VocabMode::one_barrier, VocabMode::two_barriers};

std::map<std::string, PlanRow> by_name(const Plan& plan) {
    std::map<std::string, PlanRow> rows;
    for (const PlanRow& row : plan.rows) rows[to_string(row.candidate)] = row;
    return rows;
}

std::string error_of(const PlanOptions& options) {
    try {
        (void)make_plan(options);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "planned";
}

/// Two ranks with a stage each; what the file of --pass-times would say.
PlannedPassTimes two_stages() {
    using enum Op;
    PlannedPassTimes times{.name = "t.csv", .rank_of_stage = {0, 1}};
    TableCosts::OpCosts stage{};
    for (const auto& [op, ns] :
         {std::pair{F, 1'000'000}, {B, 2'000'000}, {I, 1'100'000}, {W, 900'000}}) {
        stage[static_cast<size_t>(op)] = ns;
    }
    TableCosts::OpCosts nothing;
    nothing.fill(-1);
    times.stage_ns = {stage, stage};
    times.rank_ns = {nothing, nothing};
    return times;
}

TEST(Plan, TakesTheLayersOfEveryStageThatTheUserGives) {
    PlanOptions options = small_plan();  // 8 layers on 4 GPUs
    options.layers_per_stage = {3, 2, 2, 1};
    const Plan plan = make_plan(options);
    std::set<VocabMode> modes;
    for (const PlanRow& row : plan.rows) {
        EXPECT_EQ(row.candidate.layers_per_stage, options.layers_per_stage);
        EXPECT_EQ(row.candidate.split, LayerSplit::given);
        modes.insert(row.candidate.vocab_mode);
    }
    EXPECT_TRUE(modes.contains(VocabMode::none));
    EXPECT_FALSE(modes.contains(VocabMode::redistributed)) << "has the layers of none";
    EXPECT_TRUE(std::ranges::any_of(plan.skipped, [](const auto& skipped) {
        return skipped.second == "has 8 stages, but --layers-per-stage has 4 numbers";
    }));
    options.layers_per_stage = {3, 2, 2, 2};
    EXPECT_THROW((void)make_plan(options), UsageError);
}

TEST(Plan, UsesMeasuredPassTimesWhereStagesAreOnTheSameRanks) {
    PlanOptions options = small_plan();
    options.gpus = 2;
    options.sensitivity_rows = 0;
    options.schedules = {"1f1b", "zb-v"};
    options.vocab_modes = {VocabMode::none};
    options.pass_times = two_stages();
    for (Op op : {Op::E, Op::G, Op::S, Op::T, Op::Report, Op::Update}) {
        for (auto& rank : options.pass_times->rank_ns) rank[static_cast<size_t>(op)] = 0;
    }
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.rows.size(), 1U);
    EXPECT_EQ(plan.rows.front().candidate.schedule, "1f1b");
    // m (F + B) of the last rank and the fill and drain of the other; messages come on top.
    EXPECT_GE(plan.rows.front().step_ns, 17 * 3'000'000);
    EXPECT_LT(plan.rows.front().step_ns, 17 * 3'000'000 * 1.05);
    ASSERT_EQ(plan.skipped.size(), 1U);
    EXPECT_EQ(plan.skipped.front().first.schedule, "zb-v");
    EXPECT_EQ(plan.skipped.front().second, "the passes of t.csv are of 2 stages");
    options.gpus = 4;
    EXPECT_EQ(error_of(options),
              "--gpus 4: does not match the passes of t.csv, which are for 2 ranks");
}

TEST(Plan, LeavesOutVocabularyModesWithShardsOnOtherRanksThanMeasured) {
    PlanOptions options = small_plan();
    options.gpus = 2;
    options.sensitivity_rows = 0;
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::none, VocabMode::one_barrier};
    options.pass_times = two_stages();
    EXPECT_EQ(make_plan(options).rows.size(), 2U) << "nothing is said of the vocabulary";
    for (Op op : {Op::S, Op::T}) {
        for (auto& rank : options.pass_times->rank_ns) rank[static_cast<size_t>(op)] = 500'000;
    }
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.rows.size(), 1U);
    EXPECT_EQ(plan.rows.front().candidate.vocab_mode, VocabMode::one_barrier);
    ASSERT_EQ(plan.skipped.size(), 1U);
    EXPECT_EQ(plan.skipped.front().second,
              "the passes of t.csv have the output layer on other ranks");
}

TEST(Plan, PassesMayTakeNoTimeWhereTheOutputLayerIsAndMustNotElsewhere) {
    PlanOptions options = small_plan();
    options.gpus = 2;
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::none};  // the output layer is on the last rank
    options.pass_times = two_stages();
    const auto skipped = [&](int64_t first_s, int64_t last_t) {
        options.pass_times->rank_ns[0][static_cast<size_t>(Op::S)] = first_s;
        options.pass_times->rank_ns[1][static_cast<size_t>(Op::S)] = 500'000;
        options.pass_times->rank_ns[1][static_cast<size_t>(Op::T)] = last_t;
        const Candidates candidates = list_candidates(options);
        EXPECT_EQ(candidates.possible.size() + candidates.skipped.size(), 1U);
        return candidates.skipped.empty() ? "" : candidates.skipped.front().second;
    };
    const std::string elsewhere = "the passes of t.csv have the output layer on other ranks";
    EXPECT_EQ(skipped(-1, 300'000), "");
    EXPECT_EQ(skipped(-1, 0), "");
    EXPECT_EQ(skipped(-1, -1), elsewhere) << "T was not measured";
    EXPECT_EQ(skipped(0, 0), "");
    EXPECT_EQ(skipped(1, 0), elsewhere);
}

TEST(Plan, ProgressCountsEveryCandidateAndEveryRowOfTheSensitivity) {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::none, VocabMode::one_barrier};
    const auto reports = [&] {
        std::vector<std::string> seen;
        options.progress = [&](std::string_view phase, size_t done, size_t all) {
            seen.push_back(std::string(phase) + " " + std::to_string(done) + "/" +
                           std::to_string(all));
        };
        EXPECT_EQ(make_plan(options).rows.size(), 2U);
        return seen;
    };
    options.sensitivity_rows = 1;
    for (const int threads : {1, 3}) {
        options.threads = threads;
        EXPECT_THAT(reports(), ::testing::ElementsAre("simulating 1/2", "simulating 2/2",
                                                      "varying efficiencies 1/1"));
    }
    options.sensitivity_rows = 9;  // more than there are rows
    EXPECT_EQ(reports().back(), "varying efficiencies 2/2");
}

TEST(Plan, NamesARedistributedCandidateOnce) {
    EXPECT_EQ(to_string(Candidate{.schedule = "1f1b",
                                  .vocab_mode = VocabMode::redistributed,
                                  .split = LayerSplit::redistributed}),
              "1f1b redistributed v=1");
    EXPECT_EQ(to_string(Candidate{.schedule = "1f1b", .split = LayerSplit::back}),
              "1f1b none back v=1");
}

TEST(Plan, PassTimesAndSimulationAgree) {
    for (const auto& [tied, recompute] :
         {std::pair{false, Recompute::none}, std::pair{true, Recompute::none},
          std::pair{false, Recompute::selective}, std::pair{false, Recompute::full}}) {
        PlanOptions options = small_plan();
        options.model.config.tied = tied;
        options.recompute = {recompute};
        options.sensitivity_rows = 0;
        options.evaluation = Evaluation::simulation;
        const auto simulated = by_name(make_plan(options));
        options.evaluation = Evaluation::pass_times;
        const auto timed = by_name(make_plan(options));
        ASSERT_EQ(simulated.size(), timed.size());
        ASSERT_GE(simulated.size(), 2 * std::size(kModes));
        for (const auto& [name, row] : simulated) {
            SCOPED_TRACE(name + (tied ? " tied " : " ") + std::string(to_string(recompute)));
            const PlanRow& other = timed.at(name);
            // Pass times know no queues of collectives and add the end of the step in full.
            EXPECT_NEAR(static_cast<double>(other.step_ns) / static_cast<double>(row.step_ns), 1.0,
                        0.06);
            EXPECT_NEAR(other.bubble, row.bubble, 0.05);
            EXPECT_NEAR(
                static_cast<double>(other.worst.total()) / static_cast<double>(row.worst.total()),
                1.0, 0.05);
        }
    }
}

TEST(Plan, RecomputationTakesTimeGivesMemoryAndDoesNotCountInMfu) {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::one_barrier};
    options.sensitivity_rows = 0;
    std::vector<PlanRow> rows;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        options.recompute = {recompute};
        rows.push_back(make_plan(options).rows.front());
    }
    for (size_t i = 1; i < rows.size(); ++i) {
        EXPECT_GT(rows[i].step_ns, rows[i - 1].step_ns);
        EXPECT_LT(rows[i].worst.activations, rows[i - 1].worst.activations);
        EXPECT_NEAR(rows[i].mfu * static_cast<double>(rows[i].step_ns),
                    rows[0].mfu * static_cast<double>(rows[0].step_ns),
                    1e-6 * static_cast<double>(rows[0].step_ns));
    }
    // A backward of two forwards becomes one of three; what is cheap costs a tenth at most.
    const double plain = static_cast<double>(rows[0].step_ns);
    EXPECT_LT(static_cast<double>(rows[1].step_ns), 1.1 * plain);
    EXPECT_NEAR(static_cast<double>(rows[2].step_ns), 1.25 * plain, 0.15 * plain);
}

TEST(Plan, RowsDoNotDependOnThreads) {
    PlanOptions options = small_plan();
    options.threads = 1;
    const std::string one = plan_json(make_plan(options));
    options.threads = 4;
    EXPECT_EQ(plan_json(make_plan(options)), one);
}

TEST(Plan, RowsThatFitComeFirstByTimeThenTheOthersByWhatTheyLack) {
    PlanOptions options = small_plan();
    const Plan free = make_plan(options);
    std::vector<int64_t> needs;
    for (const PlanRow& row : free.rows) needs.push_back(row.worst.total());
    std::nth_element(needs.begin(), needs.begin() + 5, needs.end());
    options.memory_gib = static_cast<double>(needs[5]) / (1 << 30);
    const Plan plan = make_plan(options);
    size_t fit = 0;
    for (size_t i = 0; i < plan.rows.size(); ++i) {
        const PlanRow& row = plan.rows[i];
        fit += row.fits() ? 1 : 0;
        if (i > 0 && row.fits() == plan.rows[i - 1].fits()) {
            if (row.fits()) {
                EXPECT_GE(row.step_ns, plan.rows[i - 1].step_ns);
            } else {
                EXPECT_LE(row.spare_bytes, plan.rows[i - 1].spare_bytes);
            }
        }
        if (i > 0) {
            EXPECT_LE(row.fits(), plan.rows[i - 1].fits());
        }
        const auto memory = static_cast<int64_t>(options.memory_gib * (1 << 30));
        EXPECT_EQ(row.spare_bytes, memory - row.worst.total());
        EXPECT_EQ(row.ranks.size(), 4U);
    }
    EXPECT_GE(fit, 5U);
    EXPECT_LT(fit, plan.rows.size());
}

TEST(Plan, ShardingKeepsMfuFlatWhereWholeVocabularyLayersLoseIt) {
    PlanOptions options = small_plan();
    options.model = load_model("gemma-2-9b");
    options.device = load_device("h100");
    options.gpus = 14;  // three layers per stage
    options.seq_length = 4096;
    options.global_batch_size = 64;
    options.schedules = {"1f1b"};
    options.sensitivity_rows = 0;
    std::map<VocabMode, std::pair<double, double>> mfu;
    for (const VocabMode mode : kModes) {
        options.vocab_modes = {mode};
        for (const int64_t vocab : {32'000, 1'000'000}) {
            options.model.config.vocab_size = vocab;
            auto& [small, large] = mfu[mode];
            (vocab == 32'000 ? small : large) = make_plan(options).rows.front().mfu;
        }
    }
    for (const VocabMode mode : kModes) {
        const auto [small, large] = mfu.at(mode);
        const bool whole = mode == VocabMode::none || mode == VocabMode::redistributed;
        if (whole) {
            EXPECT_LT(large, 0.5 * small) << to_string(mode);
        } else {
            EXPECT_NEAR(large / small, 1.0, 0.1) << to_string(mode);
        }
    }
}

TEST(Plan, OneGpuHasEveryFamilyAndReplicasOfOneGpuHaveOne) {
    const auto names = [](int gpus, int pipeline) {
        PlanOptions options = small_plan();
        options.gpus = gpus;
        options.pipeline = {pipeline};
        const Candidates candidates = list_candidates(options);
        std::set<std::string> names;
        for (const Candidate& c : candidates.possible) names.insert(c.schedule);
        for (const auto& [c, reason] : candidates.skipped) {
            if (!c.schedule.empty()) names.insert(c.schedule);
        }
        return names;
    };
    EXPECT_EQ(names(1, 1).size(), generators().size());
    EXPECT_EQ(names(2, 1), std::set<std::string>{"1f1b"});
}

TEST(Plan, EveryFamilyIsTriedInEveryMode) {
    const Candidates candidates = list_candidates(small_plan());
    for (const Generator& family : generators()) {
        for (const VocabMode mode : kModes) {
            const auto count = std::count_if(
                candidates.possible.begin(), candidates.possible.end(), [&](const Candidate& c) {
                    return c.schedule == family.name && c.vocab_mode == mode;
                });
            EXPECT_GE(count, 1) << family.name << " " << to_string(mode);
        }
    }
    for (const Candidate& candidate : candidates.possible) {
        EXPECT_EQ(std::accumulate(candidate.layers_per_stage.begin(),
                                  candidate.layers_per_stage.end(), 0),
                  8);
    }
}

TEST(Plan, FamiliesThatTradeMemoryAreTriedWithLessOfIt) {
    PlanOptions options = small_plan();
    options.schedules = {"v-search", "zb"};
    options.vocab_modes = {VocabMode::one_barrier};
    const Plan plan = make_plan(options);
    std::map<std::string, int64_t> activations;
    for (const PlanRow& row : plan.rows) {
        activations[schedule_text(row.candidate)] = row.worst.activations;
    }
    ASSERT_EQ(activations.size(), 3U);
    EXPECT_LT(activations.at("v-search k=6"), activations.at("v-search"));
    EXPECT_TRUE(activations.contains("zb k=6"));
}

TEST(Plan, LeftOverLayersGoToTheFrontOrToTheBack) {
    PlanOptions options = small_plan();
    options.model.config.num_layers = 10;
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::one_barrier, VocabMode::redistributed};
    const Candidates candidates = list_candidates(options);
    ASSERT_EQ(candidates.possible.size(), 3U);
    EXPECT_EQ(candidates.possible[0].layers_per_stage, (std::vector<int>{3, 3, 2, 2}));
    EXPECT_EQ(candidates.possible[1].layers_per_stage, (std::vector<int>{2, 2, 3, 3}));
    EXPECT_EQ(candidates.possible[2].split, LayerSplit::redistributed);
    EXPECT_LT(candidates.possible[2].layers_per_stage.back(), 2);
}

// The output layer is worth fewer layers that recompute.
TEST(Plan, RecomputationMovesFewerLayersAwayFromTheOutputLayer) {
    PlanOptions options = small_plan();
    options.model.config.num_layers = 18;
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::redistributed};
    const auto of_last = [&](Recompute recompute) {
        options.recompute = {recompute};
        return list_candidates(options).possible.front().layers_per_stage.back();
    };
    EXPECT_EQ(of_last(Recompute::none), 1);
    EXPECT_EQ(of_last(Recompute::full), 2);
}

TEST(Plan, MoreGpusThanLayersLeavesStagesEmpty) {
    PlanOptions options = small_plan();
    options.model.config.num_layers = 3;
    options.schedules = {"1f1b"};
    const Plan plan = make_plan(options);
    for (const PlanRow& row : plan.rows) {
        EXPECT_EQ(std::accumulate(row.candidate.layers_per_stage.begin(),
                                  row.candidate.layers_per_stage.end(), 0),
                  3);
        EXPECT_GT(row.mfu, 0);
    }
}

TEST(Plan, SkipsWhatIsImpossibleAndSaysWhy) {
    PlanOptions options = small_plan();
    options.schedules = {"v-half", "interleaved"};
    options.chunks = {4};
    options.schedules.emplace_back("1f1b");
    const Plan plan = make_plan(options);
    bool fixed = false;
    bool stages = false;
    for (const auto& [candidate, reason] : plan.skipped) {
        fixed = fixed || (candidate.schedule == "v-half" && reason == "has 2 chunks per rank");
        stages = stages || reason == "more stages than the model's 8 layers";
    }
    EXPECT_TRUE(fixed);
    EXPECT_TRUE(stages);
    EXPECT_THAT(plan_text(plan, 5), HasSubstr("v-half: has 2 chunks per rank"));
}

TEST(Plan, NumbersOfChunksAreForFamiliesWithSeveral) {
    PlanOptions options = small_plan();
    options.model.config.num_layers = 20;
    options.schedules = {"1f1b", "interleaved", "v-half"};
    options.vocab_modes = {VocabMode::none};
    const auto chunks = [&](std::vector<int> asked) {
        options.chunks = std::move(asked);
        std::set<std::string> found;
        for (const Candidate& c : list_candidates(options).possible) {
            found.insert(c.schedule + " " + std::to_string(c.chunks));
        }
        return found;
    };
    using ::testing::ElementsAre;
    EXPECT_THAT(chunks({2, 5}),
                ElementsAre("1f1b 1", "interleaved 2", "interleaved 5", "v-half 2"));
    EXPECT_THAT(chunks({5}), ElementsAre("1f1b 1", "interleaved 5"));
    EXPECT_THAT(chunks({1}), ElementsAre("1f1b 1", "interleaved 1"));
}

TEST(Plan, RedistributedWithTheLayersOfNoneIsOneRow) {
    PlanOptions options = small_plan();
    options.schedules = {"1f1b"};
    options.vocab_modes = {VocabMode::none, VocabMode::redistributed};
    options.model.config.vocab_size = 100;  // nothing to move layers for
    Candidates candidates = list_candidates(options);
    EXPECT_EQ(candidates.possible.size(), 1U);
    ASSERT_EQ(candidates.skipped.size(), 1U);
    EXPECT_EQ(candidates.skipped.front().second, "has the layers of none");
    options.vocab_modes = {VocabMode::redistributed};
    EXPECT_EQ(list_candidates(options).possible.size(), 1U);
    options.vocab_modes = {VocabMode::none, VocabMode::redistributed};
    options.model.config.vocab_size = 1'000'000;
    EXPECT_EQ(list_candidates(options).possible.size(), 2U);
}

TEST(Plan, ALowerEfficiencyNeverMakesAStepShorter) {
    const Plan plan = make_plan(small_plan());
    ASSERT_EQ(plan.sensitivity.size(), 12U);
    for (const Sensitivity& s : plan.sensitivity) {
        if (s.factor < 1) {
            EXPECT_GE(s.step_ns, plan.rows.front().step_ns) << s.figure;
        } else {
            EXPECT_LE(s.step_ns, plan.rows.front().step_ns) << s.figure;
        }
        EXPECT_LE(s.best_step_ns, s.step_ns);
    }
}

TEST(Plan, RefusesImpossibleSizesOfTheModel) {
    const auto refusal = [](auto ModelConfig::*size, int64_t value) {
        PlanOptions options = small_plan();
        using Size = std::remove_reference_t<decltype(options.model.config.*size)>;
        options.model.config.*size = static_cast<Size>(value);
        return error_of(options);
    };
    EXPECT_EQ(refusal(&ModelConfig::hidden_size, 0),
              "model small: hidden size 0: must be from 1 to 16777216");
    EXPECT_EQ(refusal(&ModelConfig::num_layers, 65537),
              "model small: layers 65537: must be from 1 to 65536");
    EXPECT_EQ(refusal(&ModelConfig::num_query_groups, 17),
              "--num-query-groups 17: must divide --num-attention-heads 16");
    EXPECT_THAT(refusal(&ModelConfig::vocab_size, int64_t{1} << 31),
                HasSubstr("at most 2147483647"));
    PlanOptions options = small_plan();
    set_family(options.model.config, "mixtral");
    options.model.config.moe.experts = 8;
    options.model.config.moe.top_k = 9;
    EXPECT_EQ(error_of(options), "--moe-router-topk 9: must be from 1 to --num-experts 8");
}

TEST(Plan, RefusesImpossibleOptionsByFlag) {
    PlanOptions options = small_plan();
    options.gpus = 0;
    EXPECT_THAT(error_of(options), HasSubstr("--gpus 0: must be"));
    options = small_plan();
    options.global_batch_size = 15;
    options.micro_batch_sizes = {2};
    EXPECT_THAT(error_of(options), HasSubstr("--global-batch-size 15: must be a multiple"));
    options = small_plan();
    options.seq_length = 4096;
    EXPECT_THAT(error_of(options), HasSubstr("--seq-length 4096: small has 2048 learned"));
    options = small_plan();
    options.schedules = {"1f1bb"};
    EXPECT_THAT(error_of(options), HasSubstr("--schedules 1f1bb: must be one of"));
    EXPECT_THAT(error_of(options), HasSubstr("did you mean 1f1b?"));
    options = small_plan();
    options.schedules = {"v-half"};
    options.chunks = {3};
    EXPECT_THAT(error_of(options),
                HasSubstr("no candidate is possible: v-half none front v=3: has 2"));
}

}  // namespace
}  // namespace vocabpipe::testing
