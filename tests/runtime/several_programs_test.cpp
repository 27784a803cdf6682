// SPDX-License-Identifier: Apache-2.0
// One executor with the programs of a whole run: training with two numbers of microbatches, and
// evaluation, in one arena.
#include "tests/support/pipeline_run.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>
#include <algorithm>
#include <cstring>

namespace vocabpipe::testing {
namespace {

constexpr int kRanksOfSeveral = 3;
constexpr int64_t kSequences = 2;

/// What a rank holds after a step.
struct Outcome {
    std::vector<std::byte> gradients;
    std::vector<double> losses;
    friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// A rank with its executor, on a world of threads.
class Rank {
public:
    Rank(Communicator& communicator, const ModelConfig& config, const Schedule& schedule)
        : rank_(communicator.rank()),
          config_(config),
          device_(make_host_device()),
          partition_(even_partition(config, schedule, kSequences)),
          model_(config, partition_, schedule, rank_, *device_),
          executor_(communicator, *device_, model_.modules(),
                    step_sizes(config, partition_, schedule), {.poison_dead_buffers = true}) {
        model_.initialise(executor_.context(), 7);
    }

    /// Returns this rank's program.
    Program load(const Schedule& schedule, size_t slot) {
        const std::vector<Program> programs =
            lower(schedule, step_sizes(config_, partition_, schedule),
                  TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500));
        executor_.load(programs, slot);
        return programs[static_cast<size_t>(rank_)];
    }

    Outcome step(const Batch& batch, size_t slot) {
        const std::vector<Microbatch> microbatches = batch.microbatches();
        executor_.run_step(microbatches, slot);
        Outcome outcome;
        for (const Parameter& p : model_.parameters()) {
            const Tensor gradient = p.gradient_of_layer();
            const auto bytes = std::as_bytes(
                std::span(gradient.as<const float>(), static_cast<size_t>(gradient.size())));
            outcome.gradients.insert(outcome.gradients.end(), bytes.begin(), bytes.end());
        }
        if (model_.output() != nullptr) {
            const auto losses = model_.output()->losses();
            outcome.losses.assign(losses.begin(), losses.end());
        }
        return outcome;
    }

    [[nodiscard]] Executor& executor() { return executor_; }
    [[nodiscard]] int rank() const { return rank_; }

private:
    int rank_;
    ModelConfig config_;
    std::unique_ptr<Device> device_;
    ModelPartition partition_;
    ModelRank model_;
    Executor executor_;
};

class SeveralPrograms : public ::testing::TestWithParam<VocabMode> {
protected:
    [[nodiscard]] Schedule schedule(int microbatches) const {
        return make_schedule("zb-v", {.ranks = kRanksOfSeveral,
                                      .microbatches = microbatches,
                                      .vocab_mode = GetParam(),
                                      .vocab_size = config_.vocab_size});
    }
    template <typename Body>
    void on_every_rank(const Body& body) const {
        World::threads(kRanksOfSeveral, {.timeout_seconds = 30})
            .run([&](Communicator& communicator) {
                Rank rank(communicator, config_, schedule(4));
                body(rank);
            });
    }

    ModelConfig config_ = tiny_gpt(6, {.tied = true});
    Batch four_ = random_batch(config_, 4, kSequences, 1);
    Batch two_ = random_batch(config_, 2, kSequences, 2);
};

TEST_P(SeveralPrograms, GiveWhatEachGivesAlone) {
    std::vector<Outcome> four(kRanksOfSeveral);
    std::vector<Outcome> two(kRanksOfSeveral);
    on_every_rank([&](Rank& rank) {
        (void)rank.load(schedule(4), 0);
        four[static_cast<size_t>(rank.rank())] = rank.step(four_, 0);
    });
    on_every_rank([&](Rank& rank) {
        (void)rank.load(schedule(2), 0);
        two[static_cast<size_t>(rank.rank())] = rank.step(two_, 0);
    });
    on_every_rank([&](Rank& rank) {
        const Outcome& want_four = four[static_cast<size_t>(rank.rank())];
        const Outcome& want_two = two[static_cast<size_t>(rank.rank())];
        (void)rank.load(schedule(4), 0);
        (void)rank.load(schedule(2), 1);
        (void)rank.load(evaluation_schedule(schedule(4)), 2);
        EXPECT_EQ(rank.step(two_, 1), want_two);
        EXPECT_EQ(rank.step(four_, 0), want_four);
        const Outcome evaluated = rank.step(four_, 2);
        EXPECT_EQ(evaluated.losses, want_four.losses);
        EXPECT_EQ(evaluated.gradients, want_four.gradients);  // not touched
        EXPECT_EQ(rank.step(two_, 1), want_two);
    });
}

TEST_P(SeveralPrograms, ShareAnArenaOfTheLargestOfThem) {
    on_every_rank([&](Rank& rank) {
        const Program evaluation = rank.load(evaluation_schedule(schedule(4)), 2);
        EXPECT_EQ(rank.executor().arena_bytes(), evaluation.arena_bytes);
        const Program two = rank.load(schedule(2), 1);
        const Program four = rank.load(schedule(4), 0);
        EXPECT_EQ(rank.executor().arena_bytes(),
                  std::max({two.arena_bytes, four.arena_bytes, evaluation.arena_bytes}));
        EXPECT_GT(four.arena_bytes, evaluation.arena_bytes);
    });
}

TEST_P(SeveralPrograms, KeepTheTimelineOfTheirLastStep) {
    on_every_rank([&](Rank& rank) {
        const Program four = rank.load(schedule(4), 0);
        const Program evaluation = rank.load(evaluation_schedule(schedule(4)), 1);
        (void)rank.step(four_, 0);
        (void)rank.step(four_, 1);
        EXPECT_EQ(rank.executor().timeline(0).spans.size(), four.actions.size());
        EXPECT_EQ(rank.executor().timeline(1).spans.size(), evaluation.actions.size());
        EXPECT_LE(rank.executor().timeline(0).spans.back().begin_ns,
                  rank.executor().timeline(1).spans.front().begin_ns);
    });
}

TEST_P(SeveralPrograms, MustBeOfAsManyRanksAsTheWorldHas) {
    on_every_rank([&](Rank& rank) {
        EXPECT_THROW(rank.executor().load(std::vector<Program>(kRanksOfSeveral - 1)), UsageError);
        EXPECT_THROW(
            rank.executor().load(Lowered{.mesh = {.pipeline = kRanksOfSeveral, .data = 2}}),
            UsageError);
    });
}

TEST_P(SeveralPrograms, MustHaveBeenLoaded) {
    World::threads(1, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        Rank rank(
            communicator, config_,
            make_schedule("1f1b", {.vocab_mode = GetParam(), .vocab_size = config_.vocab_size}));
        EXPECT_THROW((void)rank.step(two_, 0), UsageError);
    });
}

INSTANTIATE_TEST_SUITE_P(, SeveralPrograms, ::testing::ValuesIn(kEveryVocabMode),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace vocabpipe::testing
