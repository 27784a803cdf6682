// SPDX-License-Identifier: Apache-2.0
// Random schedules whose boundaries travel by a random number of pieces, while ranks and messages
// are late at random: the bits of the single-rank oracle, and no hang.
//
// VOCABPIPE_PROPERTY_CASES: schedules (default 500, with sanitizers 100).
#include "tests/runtime/property.hpp"
#include "tests/support/random_schedule.hpp"
#include "tests/support/stalling_device.hpp"
#include "vocabpipe/tile_map.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>

namespace vocabpipe::testing {
namespace {

const int kStreamedCases = number_of_cases(500);
constexpr int kMostSequences = 34;    // 170 rows
constexpr int kMostPiecesOfRows = 5;  // that many rows have
constexpr int kMostPiecesAskedFor = 8;

/// Which piece arrives when, and what a rank does meanwhile, is left to chance: ranks sleep between
/// actions and inside passes, and ends of messages are seen late and out of order.
Stalls any_stalls(std::mt19937& random) {
    const auto up_to = [&](double most) {
        return std::uniform_real_distribution<>(0, most)(random);
    };
    return {.seed = random(),
            .before_action = up_to(0.1),
            .in_pass = up_to(0.1),
            .stall_us = up_to(30),
            .late_message = up_to(0.3),
            .late_us = up_to(60),
            .overlooked = up_to(0.5)};
}

/// From `least` to `most`, whatever the size of the case.
int evenly(const char* what, int least, int most) {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(least, most + 1)).as(what);
}

TEST(StreamProperty, RandomSchedulesGiveTheBitsOfTheSingleRankWhateverIsLate) {
    std::map<int, int> runs;  // by pieces
    StallCounts delays;
    Property("boundaries by pieces give the oracle's bits", kStreamedCases).holds([&] {
        Shape shape = any_shape();
        shape.ranks = std::max(shape.ranks, 2);  // one has nobody to send to
        const int sequences = evenly("sequences", 1, kMostSequences);
        const int asked = evenly("pieces", 1, kMostPiecesAskedFor);
        const int ahead = *rc::gen::element(0, 1, 3).as("receive ahead, or 0 for auto");
        std::mt19937 random(shape.seed);
        const Schedule schedule =
            random_schedule(random, shape.ranks, shape.stages, shape.microbatches, shape.vocab_size,
                            shape.forward_only);
        RC_LOG(describe(schedule));
        const Stalls stalls = any_stalls(random);
        PipelineOptions options;
        options.pieces = asked;
        options.receive_ahead = ahead;
        options.make_device = [&](int rank) { return make_stalling_device(rank, stalls, &delays); };
        const std::string fault = fault_of_run(schedule, shape.seed, sequences, options);
        // What depends on timing may be gone when RapidCheck runs the case again to describe it.
        if (!fault.empty())
            std::fprintf(stderr, "%s\n%s\n", fault.c_str(), describe(schedule).c_str());
        RC_ASSERT(fault == "");
        ++runs[TileMap::even(kTokensOfSequence * sequences, 1, asked).pieces(0)];
    });
    for (const auto& [pieces, count] : runs) std::printf("%d pieces: %d run\n", pieces, count);
    std::printf("%lld sleeps, %lld late messages\n", static_cast<long long>(delays.stalls),
                static_cast<long long>(delays.late_messages));
    for (int pieces = 1; pieces <= kMostPiecesOfRows; ++pieces) {
        EXPECT_GT(runs[pieces], kStreamedCases / 50) << pieces << " pieces";
    }
    EXPECT_GT(delays.stalls, kStreamedCases);
    EXPECT_GT(delays.late_messages, kStreamedCases);
}

}  // namespace
}  // namespace vocabpipe::testing
