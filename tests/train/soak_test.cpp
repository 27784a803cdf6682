// SPDX-License-Identifier: Apache-2.0
// Training while ranks stop and messages are late at random: nothing hangs, and losses, gradient
// norms and weights have the bits of the run that nobody held up.
//
// VOCABPIPE_SOAK_SECONDS: how long (default 3). VOCABPIPE_SOAK_SEED: the first round's seed, which
// a failure prints; by default another one every time.
#include "tests/support/schedule_cases.hpp"
#include "tests/support/stalling_device.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe::testing {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

double soak_seconds() {
    const char* text = std::getenv("VOCABPIPE_SOAK_SECONDS");
    return text == nullptr ? 3 : std::atof(text);
}

uint64_t first_seed() {
    const char* text = std::getenv("VOCABPIPE_SOAK_SEED");
    return text == nullptr ? std::random_device()() : std::strtoull(text, nullptr, 10);
}

/// A run of a few steps, small enough that several fit into a second, stalls included.
TrainingSetup small_run() {
    TrainingSetup setup{.ranks = 3, .mode = VocabMode::one_barrier, .steps = 4, .sequences = 1};
    setup.config = tiny_gpt(8, {.vocab_size = 23, .tied = true});
    return setup;
}

int ranks_of(const TrainingSetup& setup) {
    return setup.ranks * setup.replicas * setup.tensor;
}

/// What a seed chooses: any family in any vocabulary mode on two to four ranks, once or twice, with
/// one or two ranks for each stage.
struct Round {
    explicit Round(uint64_t seed) : random(seed) {
        static const std::vector<ScheduleCase> schedules = every_schedule(std::array{2, 3, 4});
        const ScheduleCase& schedule = schedules[any(schedules.size())];
        name = test_name(schedule);
        setup.family = schedule.family;
        setup.mode = schedule.mode;
        setup.ranks = schedule.ranks;
        setup.microbatches = 1 + static_cast<int>(any(2 * static_cast<size_t>(setup.ranks) + 1));
        setup.replicas = 1 + static_cast<int>(any(2));
        setup.tensor = 1 + static_cast<int>(any(2));
        setup.tensor_pieces = 1 + static_cast<int>(any(4));
        setup.config = tiny_gpt(8, {.vocab_size = 23,
                                    .dtype = any(2) == 0 ? DType::fp32 : DType::bf16,
                                    .tied = any(2) == 0});
        setup.seed = seed;
        stalls.seed = seed;
        switch (any(4)) {
            case 0:  // one rank crawls
                slow_rank = static_cast<int>(any(static_cast<size_t>(ranks_of(setup))));
                stalls.before_action = 0.5;
                stalls.stall_us = 200;
                break;
            case 1:  // everybody stumbles, messages as well
                stalls.before_action = stalls.in_pass = 0.02;
                stalls.stall_us = 300;
                stalls.late_message = 0.2;
                stalls.late_us = 200;
                break;
            case 2:  // seldom, but for as long as several steps take
                stalls.before_action = 0.001;
                stalls.stall_us = 20000;
                stalls.late_message = 0.001;
                stalls.late_us = 20000;
                break;
            default:  // ranks are quick, every message is late by another time
                stalls.late_message = 1;
                stalls.late_us = 150;
        }
        stalls.overlooked = any(2) == 0 ? 0 : 0.5;
    }

    size_t any(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random); }

    std::mt19937_64 random;
    std::string name;
    TrainingSetup setup = small_run();
    Stalls stalls;
    int slow_rank = -1;  ///< none: all are held up
};

/// The same run with every rank on a host that stalls.
Training held_up(TrainingSetup setup, const Stalls& stalls, int slow_rank = -1,
                 StallCounts* counts = nullptr) {
    setup.make_device = [=](int rank) {
        const bool held = slow_rank < 0 || rank == slow_rank;
        return held ? make_stalling_device(rank, stalls, counts) : make_host_device();
    };
    return train_on_threads(setup);
}

TEST(Soak, StallsOfRanksAndMessagesNeitherHangARunNorChangeItsBits) {
    const double limit = soak_seconds();
    const uint64_t first = first_seed();
    const Clock::time_point begin = Clock::now();
    double reported = 0;
    StallCounts counts;
    std::set<std::string> kinds;
    uint64_t rounds = 0;
    const auto report = [&](double now) {
        std::printf(
            "soak: %.0f of %.0f s, %llu runs of %zu schedules, %lld stalls, %lld late messages\n",
            now, limit, static_cast<unsigned long long>(rounds), kinds.size(),
            static_cast<long long>(counts.stalls), static_cast<long long>(counts.late_messages));
        std::fflush(stdout);
        reported = now;
    };
    do {
        const uint64_t seed = first + rounds;
        const Round round(seed);
        SCOPED_TRACE("VOCABPIPE_SOAK_SEED=" + std::to_string(seed) + " " + round.name);
        try {
            const Training expected = train_on_threads(round.setup);
            const Training actual = held_up(round.setup, round.stalls, round.slow_rank, &counts);
            ASSERT_EQ(first_difference(expected, actual), "");
        } catch (const std::exception& error) {
            FAIL() << error.what();
        }
        ++rounds;
        kinds.insert(round.name);
        if (seconds_since(begin) - reported >= 10) report(seconds_since(begin));
    } while (seconds_since(begin) < limit);
    report(seconds_since(begin));
    EXPECT_GT(counts.stalls, 0);
    EXPECT_GT(counts.late_messages, 0);
}

// Pieces of tensor ranks that come late, in other orders, and in other numbers.
TEST(Soak, TensorRanksHaveTheirBitsHoweverTheirPiecesAreCutAndHeldUp) {
    TrainingSetup setup = small_run();
    setup.family = "zb-h1";
    setup.ranks = 2;
    setup.tensor = 2;
    setup.steps = 2;
    const Training expected = train_on_threads(setup);
    for (const int pieces : {1, 3}) {
        setup.tensor_pieces = pieces;
        StallCounts counts;
        const Stalls stalls{.seed = 11,
                            .before_action = 0.05,
                            .in_pass = 0.02,
                            .stall_us = 200,
                            .late_message = 0.3,
                            .late_us = 100,
                            .overlooked = 0.5};
        EXPECT_EQ(first_difference(expected, held_up(setup, stalls, -1, &counts)), "") << pieces;
        EXPECT_GT(counts.stalls, 0);
        EXPECT_GT(counts.late_messages, 0);
    }
}

// What the soak would see.

TEST(SoakItself, SeesAMessageThatIsLost) {
    TrainingSetup setup = small_run();
    setup.timeout_seconds = 0.5;
    try {
        (void)held_up(setup, {.seed = 1, .lost_transfer = 20}, 1);
        FAIL() << "nobody missed it";
    } catch (const CommunicationError& error) {
        EXPECT_NE(std::string(error.what()).find("no progress within"), std::string::npos)
            << error.what();
    }
}

TEST(SoakItself, SeesASingleBitThatIsAnother) {
    const TrainingSetup setup = small_run();
    EXPECT_NE(first_difference(train_on_threads(setup),
                               held_up(setup, {.seed = 1, .damaged_transfer = 0}, 1)),
              "");
}

// In what is gathered and in partial sums, of the first microbatch and of later ones.
TEST(SoakItself, SeesASingleBitOfAPieceOfTensorRanksThatIsAnother) {
    TrainingSetup setup = small_run();
    setup.ranks = 1;
    setup.tensor = 2;
    setup.tensor_pieces = 3;
    setup.steps = 1;
    const Training expected = train_on_threads(setup);
    ASSERT_EQ(first_difference(expected, held_up(setup, {.seed = 1}, 1)), "");
    for (const int64_t piece : {0, 1, 2, 3, 5, 8, 13, 21}) {
        EXPECT_NE(
            first_difference(expected, held_up(setup, {.seed = 1, .damaged_piece = piece}, 1)), "")
            << "piece " << piece;
    }
}

// Every piece is announced by a message of its own, which the receiver checks.
TEST(SoakItself, SeesAnAnnouncementOfTensorRanksThatIsAnother) {
    TrainingSetup setup = small_run();
    setup.ranks = 1;
    setup.tensor = 2;
    setup.tensor_pieces = 3;
    try {
        (void)held_up(setup, {.seed = 1, .damaged_transfer = 0}, 1);
        FAIL() << "nobody missed it";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what())
                      .find("rank 1: all-gather for transformer.h.0.attn.c_attn"
                            ": expects piece 0 of member 0 (rank 0)"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace vocabpipe::testing
