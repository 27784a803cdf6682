// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/streaming_pass.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <vector>

namespace vocabpipe::testing {
namespace {

/// A point that a pass comes to, and the work that it has done by then.
struct Reached {
    int64_t at = 0;
    bool needed = false;
    int piece = 0;
    friend bool operator==(const Reached&, const Reached&) = default;
    friend void PrintTo(const Reached& point, std::ostream* out) {
        *out << (point.needed ? "needs " : "made ") << point.piece << " at " << point.at;
    }
};

struct Walk {
    std::vector<Reached> points;
    int64_t work = 0;  ///< in all
};

Walk walk(StreamingPass pass) {
    Walk walked;
    while (true) {
        while (const StreamingPass::Point* const point = pass.here()) {
            walked.points.push_back({walked.work, point->needed, point->piece});
            pass.pass();
        }
        if (pass.is_over()) return walked;
        walked.work += pass.work_to_next();
        pass.reached();
    }
}

using Points = std::vector<Reached>;

TEST(StreamingPass, NeedsItsInputEvenlyOverTheWorkThatUsesIt) {
    const StreamedShare share{.input_end = 500};
    const Walk walked = walk(StreamingPass(1000, share, 4, 0, 1));
    EXPECT_EQ(walked.points,
              (Points{{0, true, 1}, {125, true, 2}, {250, true, 3}, {375, true, 4}}));
    EXPECT_EQ(walked.work, 1000);
}

// All pieces but the first cost 10: their uses take 500 + 30, the pass 1000 + 30.
TEST(StreamingPass, SpreadsWhatPiecesOfItsInputAddOverTheirUse) {
    const StreamedShare share{.input_end = 500, .input_piece_ns = 10};
    const Walk walked = walk(StreamingPass(1000, share, 4, 0, 1));
    EXPECT_EQ(
        walked.points,
        (Points{{0, true, 1}, {530 / 4, true, 2}, {2 * 530 / 4, true, 3}, {3 * 530 / 4, true, 4}}));
    EXPECT_EQ(walked.work, 1030);
}

// All pieces but the first cost 10: they are made within 200 + 30, and 200 more work follow.
TEST(StreamingPass, SpreadsWhatPiecesOfItsOutputAddOverTheWorkThatMakesThem) {
    const StreamedShare share{.output_begin = 600, .output_end = 800, .output_piece_ns = 10};
    const Walk walked = walk(StreamingPass(1000, share, 0, 4, 1));
    EXPECT_EQ(walked.points, (Points{{600 + 230 / 4, false, 1},
                                     {600 + 2 * 230 / 4, false, 2},
                                     {600 + 3 * 230 / 4, false, 3},
                                     {600 + 230, false, 4}}));
    EXPECT_EQ(walked.work, 1030);
}

// In units of a third of a ns: 3 input pieces add 2 x 10 x 3, 2 output pieces 20 x 3. What the
// input adds comes before what is made.
TEST(StreamingPass, MakesItsOutputLaterByWhatItsInputAdds) {
    const StreamedShare share{
        .input_end = 300, .output_begin = 500, .input_piece_ns = 10, .output_piece_ns = 20};
    const Walk walked = walk(StreamingPass(1000, share, 3, 2, 3));
    EXPECT_EQ(walked.points, (Points{{0, true, 1},
                                     {360 / 3, true, 2},
                                     {2 * 360 / 3, true, 3},
                                     {560 + 560 / 2, false, 1},
                                     {560 + 560, false, 2}}));
    EXPECT_EQ(walked.work, 1000 + 60 + 60);
}

TEST(StreamingPass, NeedsAPieceAtAPointBeforeItHasMadeOneThere) {
    const StreamedShare share{.input_end = 1000, .output_begin = 0};
    const Walk walked = walk(StreamingPass(1000, share, 2, 2, 1));
    EXPECT_EQ(walked.points,
              (Points{{0, true, 1}, {500, true, 2}, {500, false, 1}, {1000, false, 2}}));
}

TEST(StreamingPass, UsesAllAtItsBeginAndMakesAllAtItsEndWhereNothingIsSaidOfIt) {
    const Walk walked = walk(StreamingPass(1000, {}, 2, 2, 1));
    EXPECT_EQ(walked.points,
              (Points{{0, true, 1}, {0, true, 2}, {1000, false, 1}, {1000, false, 2}}));
    EXPECT_EQ(walked.work, 1000);
}

TEST(StreamingPass, OfOnePieceAddsNothing) {
    const StreamedShare share{.input_end = 500, .input_piece_ns = 10, .output_piece_ns = 10};
    EXPECT_EQ(walk(StreamingPass(1000, share, 1, 1, 1)).work, 1000);
    EXPECT_EQ(walk(StreamingPass(1000, share, 0, 1, 1)).work, 1000);
    EXPECT_EQ(walk(StreamingPass(1000, share, 1, 0, 1)).work, 1000);
}

TEST(StreamingPass, IsNoneWithoutPieces) {
    EXPECT_FALSE(StreamingPass());
    EXPECT_FALSE(StreamingPass(1000, {}, 0, 0, 1));
    EXPECT_TRUE(StreamingPass(1000, {}, 1, 0, 1));
    EXPECT_EQ(StreamingPass(1000, {}, 1, 3, 1).made(), 3);
}

}  // namespace
}  // namespace vocabpipe::testing
