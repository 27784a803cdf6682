// SPDX-License-Identifier: Apache-2.0
// The search against a full enumeration of about 2,000 candidates.
#include "src/plan/search.hpp"

#include "src/model/parameter_groups.hpp"
#include "src/plan/candidates.hpp"
#include "src/plan/evaluate.hpp"
#include "src/plan/order_cache.hpp"
#include "src/plan/step_bound.hpp"
#include "src/plan/step_model.hpp"
#include "src/plan/unit_costs.hpp"
#include "tests/plan/plan_cases.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::HasSubstr;

/// About 2,000 candidates on 16 GPUs: all families and modes, every kind of mesh, experts.
PlanOptions large_plan() {
    PlanOptions options = small_plan();
    options.model = {.name = "experts",
                     .config = {.num_layers = 12,
                                .hidden_size = 1024,
                                .ffn_hidden_size = 2048,
                                .num_attention_heads = 16,
                                .num_query_groups = 8,
                                .vocab_size = 64000}};
    set_family(options.model.config, "mixtral");
    options.model.config.moe.experts = 8;
    options.gpus = 16;
    options.global_batch_size = 32;
    options.pipeline = {1, 2, 4, 8};
    options.tensor = {1, 2, 4};
    options.expert = {1, 4};
    options.expert_tensor = {1, 2};
    options.micro_batch_sizes = {1, 2};
    options.recompute = {Recompute::none, Recompute::selective};
    options.sensitivity_rows = 0;
    return options;
}

std::string text_of(const PlanRow& row) {
    return to_string(row.candidate) + " " + std::to_string(row.step_ns) + " ns, " +
           std::to_string(row.spare_bytes) + " bytes to spare";
}

std::vector<std::string> names_of(const std::vector<PlanRow>& rows, size_t most) {
    std::vector<std::string> names;
    for (size_t i = 0; i < std::min(most, rows.size()); ++i) {
        names.push_back(to_string(rows[i].candidate));
    }
    return names;
}

StepBound bound_of(const PlanOptions& options, const Candidate& candidate) {
    return bound_step(
        step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate, false),
        candidate, options.gpu_memory_bytes());
}

class SearchedPlan : public ::testing::Test {
protected:
    static void SetUpTestSuite() {
        options_ = new PlanOptions(large_plan());
        candidates_ = new std::vector<Candidate>(list_candidates(*options_).possible);
        all_ = new Evaluated(evaluate_all(*options_, *candidates_, Evaluation::pass_times));
    }
    static void TearDownTestSuite() {
        delete options_;
        delete candidates_;
        delete all_;
    }
    /// The same rows as if GPUs had so much memory that `share` of them fit, best first.
    static PlanOptions with_memory_for(double share) {
        std::vector<int64_t> needed;
        for (const PlanRow& row : all_->rows) needed.push_back(row.worst.total());
        std::sort(needed.begin(), needed.end());
        const auto at = static_cast<size_t>(share * static_cast<double>(needed.size() - 1));
        PlanOptions options = *options_;
        options.memory_gib = static_cast<double>(needed[at]) / (1 << 30);
        return options;
    }
    static std::vector<PlanRow> best_of(const PlanOptions& options) {
        std::vector<PlanRow> rows = all_->rows;
        for (PlanRow& row : rows) row.spare_bytes = options.gpu_memory_bytes() - row.worst.total();
        std::map<std::string, size_t> place;
        for (size_t i = 0; i < candidates_->size(); ++i) place[to_string((*candidates_)[i])] = i;
        std::stable_sort(rows.begin(), rows.end(), [&](const PlanRow& a, const PlanRow& b) {
            if (a.fits() != b.fits()) return a.fits();
            if (a.fits() && a.step_ns != b.step_ns) return a.step_ns < b.step_ns;
            if (a.spare_bytes != b.spare_bytes) return a.spare_bytes > b.spare_bytes;
            return place.at(to_string(a.candidate)) < place.at(to_string(b.candidate));
        });
        return rows;
    }

    static PlanOptions* options_;
    static std::vector<Candidate>* candidates_;
    static Evaluated* all_;  ///< every candidate by pass times
};
PlanOptions* SearchedPlan::options_ = nullptr;
std::vector<Candidate>* SearchedPlan::candidates_ = nullptr;
Evaluated* SearchedPlan::all_ = nullptr;

TEST_F(SearchedPlan, NoStepIsShorterAndNoneNeedsLessMemoryThanItsBound) {
    EXPECT_GE(all_->rows.size(), 1900U);
    std::set<std::string> families;
    double slack = 0;
    for (const double share : {0.02, 0.3, 1.0}) {
        const PlanOptions options = with_memory_for(share);
        for (const PlanRow& row : all_->rows) {
            const StepBound bound = bound_of(options, row.candidate);
            ASSERT_LE(bound.step_ns, row.step_ns) << text_of(row);
            ASSERT_LE(bound.memory_bytes, row.worst.total()) << text_of(row);
            if (row.worst.total() <= options.gpu_memory_bytes()) {
                ASSERT_LE(bound.fitting_step_ns, row.step_ns) << text_of(row);
            }
            ASSERT_GE(bound.fitting_step_ns, bound.step_ns) << text_of(row);
            families.insert(row.candidate.schedule);
            slack += static_cast<double>(row.step_ns) / static_cast<double>(bound.step_ns) - 1;
        }
    }
    EXPECT_EQ(families.size(), generators().size());
    // Bounds far below the steps would be true, too, but of no use.
    EXPECT_LT(slack / static_cast<double>(3 * all_->rows.size()), 0.2);
}

// Nothing can be in another order: forwards, S and T, backwards, each with its messages.
TEST(StepBound, IsTheStepItselfWithOneMicrobatch) {
    for (const int ranks : {2, 4}) {
        PlanOptions options = small_plan();
        options.schedules = {"1f1b"};
        options.gpus = ranks;
        options.pipeline = {ranks};
        options.micro_batch_sizes = {1};
        options.global_batch_size = 1;
        const std::vector<Candidate> candidates = list_candidates(options).possible;
        const Evaluated all = evaluate_all(options, candidates, Evaluation::pass_times);
        std::set<VocabMode> modes;
        for (const PlanRow& row : all.rows) {
            EXPECT_EQ(bound_of(options, row.candidate).step_ns, row.step_ns) << text_of(row);
            modes.insert(row.candidate.vocab_mode);
        }
        EXPECT_GE(modes.size(), 4U);
    }
}

// Eight layers, of which the first three are frozen, with the embedding, and of the others the
// sixth.
TEST(FrozenSteps, HaveBoundsThatNoneOfThemIsBelow) {
    PlanOptions options = small_plan();
    options.recompute = {Recompute::none, Recompute::selective};
    options.micro_batch_sizes = {1, 4};
    use_parameter_groups(options, {parse_parameter_group("*.w?e.*:freeze"),
                                   parse_parameter_group("*.h.[0125].*:freeze")});
    const std::vector<Candidate> candidates = list_candidates(options).possible;
    const Evaluated all = evaluate_all(options, candidates, Evaluation::pass_times);
    ASSERT_GE(all.rows.size(), 300U);
    double slack = 0;
    for (const PlanRow& row : all.rows) {
        const StepBound bound = bound_of(options, row.candidate);
        ASSERT_LE(bound.step_ns, row.step_ns) << text_of(row);
        ASSERT_LE(bound.memory_bytes, row.worst.total()) << text_of(row);
        ASSERT_LE(bound.fitting_step_ns, row.step_ns) << text_of(row);
        slack += static_cast<double>(row.step_ns) / static_cast<double>(bound.step_ns) - 1;
    }
    EXPECT_LT(slack / static_cast<double>(all.rows.size()), 0.25);
}

TEST_F(SearchedPlan, FindsTheBestTenOfAllInOrder) {
    for (const double share : {0.001, 0.02, 0.3, 1.0}) {
        const PlanOptions options = with_memory_for(share);
        const Evaluated found = search_best(options, *candidates_);
        const std::vector<PlanRow> best = best_of(options);
        // Simulated, they may be in another order, or not fit.
        std::set<std::string> simulated;
        for (const PlanRow& row : found.rows) {
            if (row.evaluation == Evaluation::simulation)
                simulated.insert(to_string(row.candidate));
        }
        std::vector<std::string> searched;
        for (const PlanRow& row : best) {
            const std::string name = to_string(row.candidate);
            if (simulated.contains(name)) searched.push_back(name);
        }
        ASSERT_GE(searched.size(), 10U);
        searched.resize(10);
        EXPECT_EQ(searched, names_of(best, 10)) << share;
        EXPECT_EQ(found.counts.candidates, candidates_->size());
        EXPECT_EQ(found.counts.simulated, simulated.size());
        // Where one of them does not fit, the next is simulated, too.
        const auto fit = std::count_if(found.rows.begin(), found.rows.end(), [](const auto& row) {
            return row.evaluation == Evaluation::simulation && row.fits();
        });
        EXPECT_GE(fit, 10) << share;
        EXPECT_LE(fit, 12) << share;  // and the best of either kind of vocabulary layers
        EXPECT_EQ(found.counts.timed + found.counts.slower + found.counts.too_large +
                      found.skipped.size(),
                  candidates_->size());
        EXPECT_LT(found.counts.timed, candidates_->size() / 2) << share;
    }
}

TEST_F(SearchedPlan, IsTheSameOnAnyNumberOfThreads) {
    PlanOptions options = *options_;
    options.evaluation = Evaluation::search;
    options.threads = 1;
    const std::string one = plan_json(make_plan(options));
    options.threads = 3;
    EXPECT_EQ(plan_json(make_plan(options)), one);
    EXPECT_THAT(one, HasSubstr("\"evaluation\": \"search\""));
}

// One row is wanted: the other kind would not be among those timed without being looked for.
TEST_F(SearchedPlan, HasARowWithAndOneWithoutShardedVocabularyLayers) {
    PlanOptions options = *options_;
    options.evaluation = Evaluation::search;
    options.best = 1;
    const Plan plan = make_plan(options);
    const std::optional<VocabularyGain> gain = vocabulary_gain(plan);
    ASSERT_TRUE(gain);
    for (const size_t row : {gain->with, gain->without}) {
        EXPECT_TRUE(plan.rows[row].fits());
        EXPECT_EQ(plan.rows[row].evaluation, Evaluation::simulation);
    }
    EXPECT_EQ(plan.search.simulated, 2U);
}

TEST_F(SearchedPlan, SortsTheBestBySimulatedStep) {
    const Evaluated found = search_best(*options_, *candidates_);
    const Evaluator evaluator(*options_);
    for (size_t i = 0; i < 10; ++i) {
        const PlanRow& row = found.rows[i];
        const Schedule order = evaluator.order(row.candidate);
        EXPECT_EQ(row.step_ns, evaluator.row(row.candidate, order, Evaluation::simulation).step_ns);
        EXPECT_TRUE(row.fits());
        EXPECT_GE(row.step_ns, found.rows[i == 0 ? 0 : i - 1].step_ns);
    }
    for (size_t i = 10; i < found.rows.size(); ++i) {
        EXPECT_EQ(found.rows[i].evaluation, Evaluation::pass_times);
    }
}

TEST_F(SearchedPlan, ReportsSayWhatWasLeftOut) {
    PlanOptions options = *options_;
    options.evaluation = Evaluation::search;
    const Plan plan = make_plan(options);
    EXPECT_THAT(plan_text(plan, 3),
                HasSubstr("search: of " + std::to_string(candidates_->size()) + " candidates, " +
                          std::to_string(plan.search.timed) + " were timed"));
}

TEST_F(SearchedPlan, StoppedEndsWithTheRowsSoFar) {
    for (const Evaluation how : {Evaluation::search, Evaluation::pass_times}) {
        PlanOptions options = *options_;
        options.evaluation = how;
        options.threads = 1;
        std::atomic<bool> stop{false};
        options.stop = [&] { return stop.load(); };
        options.progress = [&](std::string_view phase, size_t done, size_t) {
            if (phase == "timing passes" && done == 40) stop = true;
        };
        const Plan plan = make_plan(options);
        EXPECT_EQ(plan.rows.size(), 40U);
        EXPECT_FALSE(plan.search.complete);
        EXPECT_EQ(plan.search.slower, 0U);
        EXPECT_TRUE(std::is_sorted(
            plan.rows.begin(), plan.rows.end(),
            [](const PlanRow& a, const PlanRow& b) { return a.fits() && !b.fits(); }));
        EXPECT_THAT(plan_text(plan, 3), HasSubstr("interrupted: the rows are those so far"));
        EXPECT_TRUE(make_plan(small_plan()).search.complete);
    }
}

TEST_F(SearchedPlan, VariesEfficienciesOfTheBestSimulatedRows) {
    PlanOptions options = *options_;
    options.evaluation = Evaluation::search;
    options.sensitivity_rows = 2;
    const Plan plan = make_plan(options);
    ASSERT_EQ(plan.sensitivity.size(), 12U);
    const auto step = static_cast<double>(plan.rows.front().step_ns);
    for (const Sensitivity& s : plan.sensitivity) {
        const double ratio = static_cast<double>(s.step_ns) / step;
        EXPECT_GE(ratio, s.factor < 1 ? 1.0 : 0.9) << s.figure;
        EXPECT_LE(ratio, s.factor < 1 ? 1 / 0.9 : 1.0) << s.figure;
    }
}

TEST(OrderCache, GivesTheOrderOfTheFamilyInEveryMode) {
    PlanOptions options = small_plan();
    options.schedules = {"v-search", "1f1b"};
    options.recompute = {Recompute::none, Recompute::selective};
    OrderCache orders;
    for (const Candidate& candidate : list_candidates(options).possible) {
        const StepModel step =
            step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate);
        const Schedule expected = make_order(
            {.name = candidate.schedule, .recompute = candidate.recompute != Recompute::none},
            step.generate);
        EXPECT_EQ(orders.order(step, candidate).passes, expected.passes) << to_string(candidate);
    }
}

TEST(OrderCache, RefusesAsOftenAsItIsAsked) {
    PlanOptions options = small_plan();
    Candidate candidate{.schedule = "v-search",
                        .chunks = 2,
                        .memory_limit = 1,
                        .layers_per_stage = std::vector<int>(8, 1),
                        .mesh = {.pipeline = 4},
                        .microbatches = 8};
    const StepModel step =
        step_model(options, unit_costs(ModelOnDevice(options), candidate), candidate);
    OrderCache orders;
    for (int asked = 0; asked < 2; ++asked) {
        EXPECT_THROW((void)orders.order(step, candidate), UsageError);
    }
}

// What lower bounds take for granted of a family.
TEST(Generators, SayWhetherTheySplitBackwards) {
    for (const Generator& family : generators()) {
        const Schedule schedule = make_schedule(family.name, {.ranks = 4,
                                                              .microbatches = 8,
                                                              .vocab_mode = VocabMode::none,
                                                              .vocab_size = 100,
                                                              .rule = {.chunks = family.chunks}});
        bool splits = false;
        for (const std::vector<Pass>& list : schedule.passes) {
            for (const Pass& pass : list) splits = splits || pass.op == Op::I;
        }
        EXPECT_EQ(family.splits_backward, splits) << family.name;
    }
}

TEST(AllSizes, AreThoseThatDivideGpusModelAndBatch) {
    PlanOptions options = large_plan();
    options.model.config.num_query_groups = 4;
    options.gpus = 12;
    options.global_batch_size = 12;
    list_all_sizes(options);
    using ::testing::ElementsAre;
    EXPECT_THAT(options.pipeline, ElementsAre(1, 2, 3, 4, 6, 12));
    EXPECT_THAT(options.tensor, ElementsAre(1, 2, 4));
    EXPECT_THAT(options.expert, ElementsAre(1, 2, 4));
    EXPECT_THAT(options.expert_tensor, ElementsAre(1)) << "8 experts on 12 ranks";
    EXPECT_THAT(options.micro_batch_sizes, ElementsAre(1, 2, 4));
    EXPECT_THAT(options.recompute,
                ElementsAre(Recompute::none, Recompute::selective, Recompute::full));
    EXPECT_TRUE(options.data.empty());
    options.model.config.moe.experts = 4;
    options.model.config.moe.ffn_hidden_size = 3 * 512;
    list_all_sizes(options);
    EXPECT_THAT(options.expert_tensor, ElementsAre(1, 2, 3));
    options.model.config.moe = {};
    list_all_sizes(options);
    EXPECT_THAT(options.expert, ElementsAre(1));
    EXPECT_THAT(options.expert_tensor, ElementsAre(1));
}

}  // namespace
}  // namespace vocabpipe::testing
