// SPDX-License-Identifier: Apache-2.0
// Runs that evaluate, and runs whose batches grow, through train().
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "tests/train/checkpoint/checkpoint_run.hpp"
#include "tests/train/data/choice_file.hpp"
#include "tests/train/data/expect_error.hpp"
#include "tests/train/one_rank.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/schedule_file.hpp"
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

namespace vocabpipe::testing {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvaluatedTraining : public ::testing::Test {
protected:
    EvaluatedTraining() {
        std::string tokens;
        for (int i = 0; i < 800; ++i) tokens += bytes_of<uint16_t>({uint16_t(i * (i + 3) % 61)});
        write_file(runs_.path("valid.bin"), tokens);
        std::vector<WrittenChoices> examples;
        for (uint16_t i = 0; i < 9; ++i) {
            examples.push_back({.label = uint16_t(i % 4),
                                .context = {i, 5, 7},
                                .completions = {{1, i}, {2}, {3, 4, i}, {uint16_t(60 - i)}}});
        }
        write_file(runs_.path("choices.bin"), choice_file(examples));
    }

    /// Six steps, evaluated after each second.
    [[nodiscard]] TrainOptions options() const {
        TrainOptions o = runs_.options();
        o.data.train_path = std::exchange(o.data.path, {});
        o.data.valid_path = {runs_.path("valid.bin")};
        o.evaluation.multiple_choice_path = runs_.path("choices.bin");
        o.evaluation.interval = 2;
        o.evaluation.iters = 3;
        return o;
    }
    /// The lines of the metrics file.
    [[nodiscard]] std::vector<json> run(int ranks, TrainOptions o) const {
        o.metrics = runs_.path("metrics.jsonl");
        std::filesystem::remove(o.metrics);
        World::threads(ranks, {.timeout_seconds = 60}).run([&](Communicator& communicator) {
            train(communicator, o);
        });
        std::istringstream lines(read_file(o.metrics));
        std::vector<json> found;
        for (std::string line; std::getline(lines, line);) found.push_back(json::parse(line));
        return found;
    }
    /// What must not change, of the lines that have `key`.
    static std::vector<std::string> texts(const std::vector<json>& lines, const char* key,
                                          const std::vector<std::string>& fields) {
        std::vector<std::string> found;
        for (const json& line : lines) {
            if (!line.contains(key)) continue;
            std::string text = line.at("step").dump();
            for (const std::string& field : fields) text += " " + line.at(field).dump();
            found.push_back(text);
        }
        return found;
    }
    static std::vector<std::string> steps(const std::vector<json>& lines) {
        return texts(lines, "loss", {"loss", "grad_norm", "lr"});
    }
    static std::vector<std::string> evaluations(const std::vector<json>& lines) {
        return texts(lines, "eval_loss", {"eval_loss", "eval_ppl", "choice_accuracy"});
    }

    CheckpointRun runs_;
};

TEST_F(EvaluatedTraining, HasTheBitsOfTrainingThatIsNotEvaluated) {
    for (const VocabMode mode : {VocabMode::none, VocabMode::one_barrier}) {
        TrainOptions alone = runs_.options();
        alone.vocab_mode = mode;
        TrainOptions evaluated = options();
        evaluated.vocab_mode = mode;
        const std::vector<json> lines = run(2, evaluated);
        EXPECT_EQ(steps(run(2, alone)), steps(lines));
        ASSERT_EQ(evaluations(lines).size(), 3U);
        EXPECT_EQ(lines.back().at("step"), 6);
        EXPECT_DOUBLE_EQ(lines.back().at("eval_ppl").get<double>(),
                         std::exp(lines.back().at("eval_loss").get<double>()));
        EXPECT_LT(lines.back().at("eval_loss").get<double>(), std::log(61) + 1);
    }
}

TEST_F(EvaluatedTraining, HasTheSameResultsWithEverySchedule) {
    TrainOptions o = options();
    o.vocab_mode = VocabMode::interlaced;
    const std::vector<std::string> expected = evaluations(run(2, o));
    for (const char* schedule : {"gpipe", "interleaved", "zb-v"}) {
        for (const VocabMode mode : {VocabMode::one_barrier, VocabMode::two_barriers}) {
            o.schedule = schedule;
            o.vocab_mode = mode;
            EXPECT_EQ(evaluations(run(2, o)), expected) << schedule;
        }
    }
}

// Between two batches of an evaluation a signal is heard on all ranks.
TEST_F(EvaluatedTraining, IsAbandonedBySigtermOfOneRankAndTheStepBeforeItIsSaved) {
    std::string tokens;
    for (int i = 0; i < 20000; ++i) tokens += bytes_of<uint16_t>({uint16_t(i * (i + 3) % 61)});
    write_file(runs_.path("valid.bin"), tokens);
    TrainOptions every = options();
    every.save = runs_.path("every");
    every.save_interval = 1;
    every.evaluation.iters = 100;  // most of the time
    const size_t whole = evaluations(run(2, every)).size();
    int abandoned = 0;
    for (int asked = 50; asked < 700; asked += 100) {
        SCOPED_TRACE(asked);
        TrainOptions o = every;
        o.save = runs_.path("saved");
        o.save_interval = 0;
        std::filesystem::remove_all(o.save);
        const std::string what = sigterm_of_one_rank(o, asked, [&](const TrainOptions& told) {
            EXPECT_EQ(evaluations(run(2, told)).size(), whole);
        });
        if (what.empty()) continue;
        const std::vector<SavedStep> steps = complete_steps(o.save);
        ASSERT_EQ(steps.size(), 1U) << what;
        EXPECT_EQ(contents(step_folder(o.save, steps.front().step)),
                  contents(step_folder(every.save, steps.front().step)));
        if (what.find("; its evaluation was abandoned; saved ") == std::string::npos) continue;
        EXPECT_EQ(steps.front().step % 2, 0) << "evaluated after each second";
        ++abandoned;
    }
    EXPECT_GE(abandoned, 3);
}

TEST_F(EvaluatedTraining, EvaluatesASavedStepAsTheRunThatSavedItDid) {
    TrainOptions o = options();
    o.vocab_mode = VocabMode::none;
    o.model.dtype = DType::bf16;
    o.save = runs_.path("saved");
    const std::string last = evaluations(run(2, o)).back();
    o.save.clear();
    o.load = runs_.path("saved");
    o.evaluation.skip_train = true;
    for (const int ranks : {1, 2, 4}) {
        const std::vector<json> lines = run(ranks, o);
        EXPECT_TRUE(steps(lines).empty());
        EXPECT_THAT(evaluations(lines), ElementsAre(last)) << ranks;
    }
    o.pipeline_model_parallel_size = 2;  // twice
    EXPECT_THAT(evaluations(run(4, o)), ElementsAre(last));
}

/// That of every line that has it.
std::vector<double> values(const std::vector<json>& lines, const char* key) {
    std::vector<double> found;
    for (const json& line : lines) {
        if (line.contains(key)) found.push_back(line.at(key).get<double>());
    }
    return found;
}

// A stage's ranks add up parts of sums over columns: results are those of one rank within rounding.
TEST_F(EvaluatedTraining, OfTensorRanksHasTheResultsOfOneRankForEachStage) {
    struct Run {
        int pipeline, replicas;
        VocabMode mode;
        bool separate;  // documents
    };
    for (const Run& r : {Run{1, 1, VocabMode::none, false}, Run{2, 1, VocabMode::one_barrier, true},
                         Run{2, 2, VocabMode::two_barriers, true}}) {
        SCOPED_TRACE(r.pipeline);
        TrainOptions o = options();
        o.evaluation.multiple_choice_path.clear();
        o.vocab_mode = r.mode;
        o.pipeline_model_parallel_size = r.pipeline;
        o.data.eod_token_id = 3;
        o.data.reset_attention_mask = r.separate;
        const std::vector<json> alone = run(r.pipeline * r.replicas, o);
        o.tensor_model_parallel_size = 2;
        const std::vector<json> together = run(2 * r.pipeline * r.replicas, o);
        for (const char* key : {"loss", "eval_loss"}) {
            const std::vector<double> want = values(alone, key);
            const std::vector<double> got = values(together, key);
            ASSERT_EQ(want.size(), std::string(key) == "loss" ? 6U : 3U);
            ASSERT_EQ(got.size(), want.size());
            for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-5) << key;
        }
        if (!r.separate) continue;
        o.data.reset_attention_mask = false;  // the masks are not without effect
        EXPECT_GT(std::abs(values(run(2 * r.pipeline * r.replicas, o), "eval_loss").front() -
                           values(alone, "eval_loss").front()),
                  1e-4);
    }
}

TEST_F(EvaluatedTraining, OfPackedDocumentsGoesOnWithTheSameOnes) {
    TrainOptions o = options();
    o.data.eod_token_id = 3;
    o.data.packing_strategy = "bfd";
    o.save = runs_.path("saved");
    o.save_interval = 2;
    const std::vector<json> whole = run(2, o);
    ASSERT_EQ(steps(whole).size(), 6U);
    o.load = step_folder(o.save, 2);
    o.save.clear();
    o.save_interval = 0;
    const std::vector<json> rest = run(2, o);
    const auto without = [](std::vector<std::string> lines, int first) {
        lines.erase(lines.begin(), lines.begin() + first);
        return lines;
    };
    EXPECT_EQ(steps(rest), without(steps(whole), 2));
    EXPECT_EQ(evaluations(rest), without(evaluations(whole), 1));
    o.data.packing_strategy = "wrapped";
    EXPECT_THAT(message_of<AgreedError>([&] { (void)run(2, o); }),
                HasSubstr("--packing-strategy is bfd, but this run has wrapped"));
    o.load.clear();
    EXPECT_NE(evaluations(run(2, o)).front(), evaluations(whole).front());
}

TEST_F(EvaluatedTraining, NeedsNoTokensForMultipleChoiceAlone) {
    TrainOptions o = options();
    o.data = {};
    o.evaluation.skip_train = true;
    const std::vector<json> lines = run(2, o);
    ASSERT_EQ(lines.size(), 1U);
    EXPECT_TRUE(lines.front().contains("choice_accuracy"));
    EXPECT_FALSE(lines.front().contains("eval_loss"));
}

TEST_F(EvaluatedTraining, RefusesFlagsThatMakeNoSense) {
    const auto refusal = [&](const auto& change) {
        TrainOptions o = options();
        change(o);
        return message_of<AgreedError>([&] { (void)run(1, o); });
    };
    EXPECT_THAT(refusal([](TrainOptions& o) { o.evaluation.interval = 0; }),
                HasSubstr("--eval-interval 0"));
    EXPECT_THAT(refusal([](TrainOptions& o) { o.evaluation.iters = -1; }),
                HasSubstr("--eval-iters -1"));
    EXPECT_THAT(refusal([](TrainOptions& o) {
                    o.evaluation = {.skip_train = true};
                    o.data.valid_path.clear();
                }),
                HasSubstr("--skip-train: there is nothing to evaluate"));
    EXPECT_THAT(refusal([](TrainOptions& o) {
                    o.evaluation.skip_train = true;
                    o.save = "there";
                }),
                HasSubstr("--save there: only training writes this"));
    EXPECT_THAT(refusal([&](TrainOptions& o) { o.data.valid_path = {"nowhere.bin"}; }),
                HasSubstr("nowhere.bin"));
    EXPECT_THAT(refusal([&](TrainOptions& o) {
                    o.evaluation.multiple_choice_path = runs_.path("valid.bin");
                }),
                HasSubstr("not an llm.c evaluation set"));
    EXPECT_THAT(refusal([](TrainOptions& o) { o.model.vocab_size = 60; }), HasSubstr("60"));
}

TEST_F(EvaluatedTraining, PlansAnArenaForTheLargestOfItsPrograms) {
    const auto planned = [](const TrainOptions& o) {
        return planned_bytes(TrainingPlan(o, std::vector<RankPlacement>(2)), 0);
    };
    const TrainOptions o = options();
    TrainOptions alone = runs_.options();
    EXPECT_EQ(planned(o), planned(alone));  // evaluation keeps less than training
    TrainOptions only = o;
    only.evaluation.skip_train = true;
    EXPECT_LT(planned(only), planned(o) / 2);  // no gradients, no moments
    TrainOptions growing = alone;
    growing.ramp_up = BatchSizeRampUp{.start = 2, .increment = 2, .samples = 8};
    EXPECT_GE(planned(growing), planned(alone));
    const TrainingPlan plan(growing, std::vector<RankPlacement>(2));
    ASSERT_EQ(plan.steps().size(), 3U);
    EXPECT_EQ(plan.steps()[plan.index_of(4)].schedule.microbatches, 4);
    for (const int rank : {0, 1}) {
        std::vector<uint64_t> arenas;
        for (const StepPlan& step : plan.steps()) {
            arenas.push_back(step.lowered.pipeline[static_cast<size_t>(rank)].arena_bytes);
        }
        const auto [least, most] = std::ranges::minmax(arenas);
        EXPECT_LT(least, most);
        EXPECT_EQ(planned_bytes(plan, rank),
                  persistent_bytes(plan, rank).total() + static_cast<int64_t>(most));
    }
    EXPECT_EQ(plan.index_of(6), 0U);
}

// --- batches that grow: sizes 2, 2, 4, 6, 6, 6

class GrowingBatches : public EvaluatedTraining {
protected:
    [[nodiscard]] TrainOptions growing() const {
        TrainOptions o = runs_.options();
        o.ramp_up = BatchSizeRampUp{.start = 2, .increment = 2, .samples = 8};
        return o;
    }
    /// Ends after the given number of steps, and saves.
    void stop_after(TrainOptions& o, int steps) const {
        o.save = runs_.path("saved");
        o.stop_requested = [left = std::make_shared<int>(steps)] { return --*left <= 0; };
    }
};

TEST_F(GrowingBatches, AreWhatRunsOfOneSizeEachGiveOneAfterTheOther) {
    const std::vector<std::string> expected = steps(run(1, growing()));
    ASSERT_EQ(expected.size(), 6U);
    std::vector<std::string> manual;
    TrainOptions o = runs_.options();
    for (const auto& [size, count] : {std::pair(2, 2), std::pair(4, 1), std::pair(6, 100)}) {
        o.global_batch_size = size;
        stop_after(o, count);
        const std::vector<std::string> part = steps(run(1, o));
        manual.insert(manual.end(), part.begin(), part.end());
        o.load = o.save;
    }
    EXPECT_EQ(manual, expected);
}

TEST_F(GrowingBatches, GoOnWhereASavedRunWas) {
    for (const char* schedule : {"1f1b", "interleaved", "zb-v"}) {
        TrainOptions o = growing();
        o.schedule = schedule;
        o.data = options().data;
        o.evaluation = options().evaluation;
        const std::vector<std::string> expected = steps(run(2, o));
        o.save = runs_.path(schedule);
        o.save_interval = 3;
        EXPECT_EQ(steps(run(2, o)), expected) << schedule;
        std::filesystem::remove_all(step_folder(o.save, 6));
        o.load = o.save;
        o.save.clear();
        o.save_interval = 0;
        const std::vector<std::string> rest = steps(run(2, o));
        EXPECT_EQ(rest, std::vector<std::string>(expected.begin() + 3, expected.end())) << schedule;
    }
}

TEST_F(GrowingBatches, HaveTheirOrdersRebuiltFromMeasuredCosts) {
    TrainOptions o = growing();
    const std::vector<std::string> expected = steps(run(2, o));
    o.schedule_costs.reset();
    EXPECT_EQ(steps(run(2, o)), expected);
}

TEST_F(GrowingBatches, AreRefusedWhereTheyCannotBe) {
    TrainOptions o = growing();
    o.ramp_up->increment = 3;
    EXPECT_THAT(message_of<AgreedError>([&] { (void)run(1, o); }),
                HasSubstr("--rampup-batch-size 2 3 8"));
    o = growing();
    o.schedule = runs_.path("six.csv");
    write_schedule(o.schedule,
                   make_schedule("1f1b", {.ranks = 1, .microbatches = 6, .vocab_size = 61}));
    EXPECT_THAT(message_of<AgreedError>([&] { (void)run(1, o); }),
                HasSubstr("has 6 microbatches, but --rampup-batch-size needs"));
}

}  // namespace
}  // namespace vocabpipe::testing
