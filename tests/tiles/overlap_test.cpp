// SPDX-License-Identifier: Apache-2.0
// Virtual times against closed forms, and the shares that docs/overlap.md states.
#include "vocabpipe/overlap.hpp"

#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace vocabpipe {
namespace {

constexpr int64_t kCompute = 1'000'000'000;
constexpr std::array kTeamOps{OverlapOp::all_gather_gemm, OverlapOp::gemm_reduce_scatter};

/// A link that takes `link_ns` for what each of `members` receives of `rows` rows of one byte.
Link link_of(double link_ns, int64_t rows, int members) {
    const int64_t travel = members == 1 ? rows : rows / members * (members - 1);
    return {.bytes_per_ns = static_cast<double>(travel) / link_ns};
}

/// Rows that divide into `pieces` equal pieces of each member, each worth a product.
int64_t rows_for(int members, int pieces) {
    return TileMap::kFewestInProduct * members * pieces;
}

OverlapTimes team(OverlapOp op, int members, int pieces, double ratio,
                  ComputeOrder order = ComputeOrder::ring) {
    const int64_t rows = rows_for(members, pieces);
    return overlap(op, TileMap::even(rows, members, pieces), kCompute,
                   link_of(ratio * kCompute, rows, members), {.order = order});
}

double in_double(int64_t ns) {
    return static_cast<double>(ns);
}

int percent(double share) {
    return static_cast<int>(std::lround(100 * share));
}

TEST(Overlap, TeamsTakeTheClosedFormsTime) {
    for (const OverlapOp op : kTeamOps) {
        for (const int t : {1, 2, 3, 4, 8}) {
            for (const int pieces : {1, 2, 4, 8, 16}) {
                for (const double ratio : {0.1, 0.5, 1.0, 1.5, 4.0}) {
                    const OverlapTimes times = team(op, t, pieces, ratio);
                    // The last piece to arrive is multiplied then, all others before or behind it.
                    const double link = t == 1 ? 0 : ratio * kCompute;
                    const double n = std::max(1, (t - 1) * pieces);
                    const double c = static_cast<double>(kCompute) / (t * pieces);
                    const double end =
                        t == 1
                            ? kCompute
                            : std::max({static_cast<double>(kCompute), link / n + n * c, link + c});
                    EXPECT_NEAR(in_double(times.overlapped_ns), end, 10)
                        << to_string(op) << " " << t << " " << pieces << " " << ratio;
                    EXPECT_EQ(times.compute_ns, kCompute);
                    EXPECT_NEAR(in_double(times.link_ns), link, 10);
                    EXPECT_EQ(times.blocking_ns, times.compute_ns + times.link_ns);
                }
            }
        }
    }
}

TEST(Overlap, SmallPiecesLeaveAfterAProductOfSeveral) {
    // Members have 256 rows in 8 pieces of 32: two products of four pieces for the other, then one
    // for oneself. A row takes 1 ns to multiply and 2 to travel.
    const Link link{.bytes_per_ns = 0.5};
    const auto end = [&](int pieces) {
        return overlap(OverlapOp::gemm_reduce_scatter, TileMap::even(512, 2, pieces), 512, link,
                       {.row_bytes = 1})
            .overlapped_ns;
    };
    EXPECT_EQ(end(8), 128 + 256 * 2);
    EXPECT_EQ(end(8), end(2));
    EXPECT_EQ(end(1), 256 + 256 * 2);
}

TEST(Overlap, StreamsTakeTheClosedFormsTime) {
    for (const int pieces : {1, 2, 4, 8, 16}) {
        for (const double ratio : {0.1, 0.5, 1.0, 2.0}) {
            const int64_t rows = rows_for(1, pieces);
            const TileMap map = TileMap::even(rows, 1, pieces);
            const double l = ratio * kCompute / pieces;
            const double c = static_cast<double>(kCompute) / pieces;
            const Link link = link_of(ratio * kCompute, rows, 1);
            const OverlapTimes in = overlap(OverlapOp::stream_in, map, kCompute, link);
            EXPECT_NEAR(in_double(in.overlapped_ns), l + c + (pieces - 1) * std::max(l, c), 10);
            const OverlapTimes hop = overlap(OverlapOp::hop, map, kCompute, link);
            EXPECT_NEAR(in_double(hop.overlapped_ns), l + 2 * c + (pieces - 1) * std::max(l, c),
                        10);
            EXPECT_NEAR(hop.hidden(), ratio <= 1 ? 1 - 1.0 / pieces : hop.hidden(), 1e-6);
            EXPECT_NEAR(in_double(hop.blocking_ns), (2 + ratio) * kCompute, 10);
        }
    }
}

TEST(Overlap, SharesThatTheDocumentsState) {
    for (const OverlapOp op : kTeamOps) {
        EXPECT_EQ(percent(team(op, 2, 1, 1).hidden()), 50);
        EXPECT_EQ(percent(team(op, 2, 4, 1).hidden()), 88);
        EXPECT_EQ(percent(team(op, 2, 8, 1).hidden()), 94);
        EXPECT_EQ(percent(team(op, 8, 1, 1).hidden()), 88);
        EXPECT_EQ(percent(team(op, 8, 4, 1).hidden()), 97);
        EXPECT_EQ(percent(team(op, 8, 8, 1).hidden()), 98);
        for (const int t : {2, 4, 8}) {
            for (const int pieces : {1, 4, 8}) {
                for (const double ratio : {0.1, 0.25, 0.5}) {
                    EXPECT_EQ(percent(team(op, t, pieces, ratio).hidden()), 100)
                        << to_string(op) << " " << t << " " << pieces << " " << ratio;
                }
            }
        }
    }
}

TEST(Overlap, DispatchHidesWhatAnAllGatherHidesAndACombineAllButItsLastPanel) {
    for (const int members : {2, 4, 8}) {
        for (const int pieces : {1, 2, 4, 8}) {
            for (const double ratio : {0.25, 1.0, 2.0}) {
                const OverlapTimes gather =
                    team(OverlapOp::all_gather_gemm, members, pieces, ratio);
                const OverlapTimes dispatch =
                    team(OverlapOp::dispatch_gemm, members, pieces, ratio);
                EXPECT_EQ(dispatch.overlapped_ns, gather.overlapped_ns);
                const OverlapTimes combine = team(OverlapOp::gemm_combine, members, pieces, ratio);
                const double panel = static_cast<double>(kCompute) / pieces;
                const double link = ratio * kCompute;
                EXPECT_NEAR(in_double(combine.overlapped_ns),
                            std::max(kCompute + link / pieces, panel + link), 10)
                    << members << " " << pieces << " " << ratio;
            }
        }
    }
    // What docs/overlap.md says.
    EXPECT_EQ(percent(team(OverlapOp::dispatch_gemm, 8, 4, 1).hidden()), 97);
    EXPECT_EQ(percent(team(OverlapOp::dispatch_gemm, 2, 8, 1).hidden()), 94);
    EXPECT_EQ(percent(team(OverlapOp::gemm_combine, 8, 8, 1).hidden()), 88);
    EXPECT_EQ(percent(team(OverlapOp::gemm_combine, 2, 4, 1).hidden()), 75);
    EXPECT_EQ(percent(team(OverlapOp::gemm_combine, 8, 1, 1).hidden()), 0);
}

TEST(Overlap, NaturalOrderHidesAThirdOnAverageAndATenthOnTheSlowestRank) {
    for (const auto& [pieces, average] : {std::pair(4, 36), std::pair(8, 37)}) {
        const int64_t rows = rows_for(8, pieces);
        const TileMap map = TileMap::even(rows, 8, pieces);
        const auto ranks =
            overlap_of_ranks(OverlapOp::all_gather_gemm, map, kCompute, link_of(kCompute, rows, 8),
                             {.order = ComputeOrder::natural});
        double sum = 0;
        double least = 1;
        for (int r = 0; r < 8; ++r) {
            // Rows of rank 0 arrive at rank r as its r-th segment of seven, and all follow; rows of
            // rank r + 1 arrive last.
            const double c = kCompute / (8.0 * pieces);
            const double behind_0 = r == 0 ? 0 : kCompute * (r / 7.0 + 7.0 / 8) + c;
            const double behind_last = r == 7 ? 0 : kCompute * (1 + (6 - r) / 8.0) + c;
            const OverlapTimes& times = ranks[static_cast<size_t>(r)];
            EXPECT_NEAR(in_double(times.overlapped_ns), std::max(behind_0, behind_last), 10) << r;
            sum += times.hidden();
            least = std::min(least, times.hidden());
        }
        EXPECT_EQ(percent(sum / 8), average);
        EXPECT_LT(least, 0.12);
        for (const OverlapOp op : kTeamOps) {
            EXPECT_LT(percent(team(op, 8, pieces, 1, ComputeOrder::natural).hidden()), 12);
        }
    }
}

TEST(Overlap, NothingIsFasterThanComputingOrTheLinkAlone) {
    std::mt19937 random(3);
    const auto upto = [&](int most) {
        return static_cast<int>(random() % static_cast<unsigned>(most + 1));
    };
    for (int round = 0; round < 2000; ++round) {
        const OverlapOp op =
            kOverlapOps[static_cast<size_t>(upto(static_cast<int>(kOverlapOps.size()) - 1))];
        const bool is_stream = op == OverlapOp::stream_in || op == OverlapOp::hop;
        std::vector<int64_t> counts(static_cast<size_t>(is_stream ? 1 : 1 + upto(7)));
        for (int64_t& count : counts) count = upto(4) == 0 ? 0 : upto(500);
        const TileMap map = TileMap::of_counts(counts, 1 + upto(200));
        const Link link{.bytes_per_ns = 0.001 * (1 + upto(1000)),
                        .latency_ns = upto(1) * upto(1000),
                        .piece_ns = upto(1) * upto(100)};
        const OverlapOptions options{
            .row_bytes = upto(100),
            .order = upto(2) == 0 ? ComputeOrder::natural : ComputeOrder::ring,
            .piece_ns = upto(1) * upto(100)};
        for (const OverlapTimes& times :
             overlap_of_ranks(op, map, upto(1'000'000), link, options)) {
            EXPECT_GE(times.overlapped_ns + 1, times.compute_ns);
            EXPECT_GE(times.overlapped_ns + 1, times.link_ns);
            if (times.link_ns == 0) continue;
            const double bound = std::min(
                1.0, static_cast<double>(times.compute_ns) / static_cast<double>(times.link_ns));
            EXPECT_LE(times.hidden(), bound + 1.0 / static_cast<double>(times.link_ns));
        }
    }
}

TEST(Overlap, AttentionOfAPanelRunsWhileTheNextOneTravels) {
    // Two members of two panels of 32 rows each: panels arrive at 32 and 64, attention of one takes
    // 64.
    const TileMap map = TileMap::even(128, 2, 2);
    const OverlapTimes times =
        overlap(OverlapOp::gather_attention, map, 128, {.bytes_per_ns = 1}, {.row_bytes = 1});
    EXPECT_EQ(times.link_ns, 64);
    EXPECT_EQ(times.blocking_ns, 128 + 64);
    EXPECT_EQ(times.overlapped_ns, 32 + 2 * 64);
    EXPECT_EQ(times.hidden(), 0.5);
    // A slow link: the last panel arrives at 4 * 64, and its attention remains.
    const OverlapTimes slow =
        overlap(OverlapOp::gather_attention, map, 128, {.bytes_per_ns = 0.25}, {.row_bytes = 1});
    EXPECT_EQ(slow.overlapped_ns, 4 * 64 + 64);
}

TEST(Overlap, LatencyAndTheCostOfPiecesAreCounted) {
    const TileMap map = TileMap::even(64, 1, 2);
    const Link link{.bytes_per_ns = 0.5, .latency_ns = 7, .piece_ns = 3};
    // Pieces of 32 bytes: 67 ns of the link each; 16 + 5 ns of computing.
    const OverlapTimes times =
        overlap(OverlapOp::stream_in, map, 32, link, {.row_bytes = 1, .piece_ns = 5});
    EXPECT_EQ(times.overlapped_ns, 2 * 67 + 7 + 21);
    EXPECT_EQ(times.link_ns, 3 + 128 + 7);
    EXPECT_EQ(times.blocking_ns, 32 + 138);
}

TEST(Overlap, PiecesThatAreThereAreOneProduct) {
    const TileMap map = TileMap::even(256, 2, 4);
    // Computing takes 1 ns for a row and 50 for a product; own rows are 128.
    const auto gather = [&](double bytes_per_ns) {
        return overlap(OverlapOp::all_gather_gemm, map, 256, {.bytes_per_ns = bytes_per_ns},
                       {.row_bytes = 1, .piece_ns = 50})
            .overlapped_ns;
    };
    EXPECT_EQ(gather(1), 128 + 50 + 128 + 50) << "all has come meanwhile";
    // Pieces of 32 rows come after 64, 128, 192 and 256 ns: two, then two.
    EXPECT_EQ(gather(0.5), 178 + 64 + 50 + 64 + 50);
    const OverlapTimes scatter = overlap(OverlapOp::gemm_reduce_scatter, map, 256,
                                         {.bytes_per_ns = 100}, {.row_bytes = 1, .piece_ns = 50});
    EXPECT_EQ(scatter.overlapped_ns, 2 * (128 + 50)) << "small pieces leave after one product";
}

TEST(ChoosePieces, ManyWhereTheyHideAndFewWhereTheyCost) {
    constexpr std::array candidates{8, 1, 4, 2, 16};
    const OverlapShape shape{
        .op = OverlapOp::gemm_reduce_scatter, .rows = 8192, .members = 4, .compute_ns = 1'000'000};
    const Link equal = link_of(1'000'000, 8192, 4);
    EXPECT_EQ(choose_pieces(shape, equal, {}, candidates).pieces, 16);
    // A fast link: the first choice that hides all of it.
    EXPECT_EQ(choose_pieces(shape, link_of(100'000, 8192, 4), {}, candidates).pieces, 1);
    // Pieces cost more than they hide.
    EXPECT_EQ(choose_pieces(shape, equal, {.piece_ns = 1'000'000}, candidates).pieces, 1);
    // In between: the best of all, by trying them.
    for (const int64_t piece_ns : {1'000, 3'000, 10'000, 30'000}) {
        const OverlapOptions options{.piece_ns = piece_ns};
        const PieceChoice choice = choose_pieces(shape, equal, options, candidates);
        for (const int pieces : candidates) {
            const OverlapTimes other =
                overlap(shape.op, TileMap::even(8192, 4, pieces), shape.compute_ns, equal, options);
            EXPECT_LE(choice.times.overlapped_ns, other.overlapped_ns);
            if (pieces == choice.pieces) {
                EXPECT_EQ(choice.times.overlapped_ns, other.overlapped_ns);
            }
        }
    }
}

TEST(ChooseTiles, TakesTimesFromShapesAndRates) {
    const TileShape gather{.op = OverlapOp::all_gather_gemm,
                           .rows = 8192,
                           .inner = 1024,
                           .columns = 512,
                           .members = 4,
                           .element_bytes = 2};
    const TileRates rates{.flops_per_ns = 1000, .link = {.bytes_per_ns = 10}};
    const PieceChoice choice = choose_tiles(gather, rates);
    EXPECT_EQ(choice.times.compute_ns, std::llround(2.0 * 8192 * 1024 * 512 / 1000));
    EXPECT_EQ(choice.times.link_ns, std::llround(8192 * 0.75 * 1024 * 2 / 10));
    TileShape scatter = gather;
    scatter.op = OverlapOp::gemm_reduce_scatter;
    EXPECT_EQ(choose_tiles(scatter, rates).times.link_ns, std::llround(8192 * 0.75 * 512 * 2 / 10));
    // A dispatch moves rows of the product's input, a combine those of its result.
    TileShape dispatch = gather;
    dispatch.op = OverlapOp::dispatch_gemm;
    EXPECT_EQ(choose_tiles(dispatch, rates).times.link_ns, choice.times.link_ns);
    TileShape combine = gather;
    combine.op = OverlapOp::gemm_combine;
    EXPECT_EQ(choose_tiles(combine, rates).times.link_ns,
              choose_tiles(scatter, rates).times.link_ns);
    // A stream brings rows of the product's input, a hop takes those of its result.
    TileShape stream = gather;
    stream.op = OverlapOp::stream_in;
    stream.members = 1;
    EXPECT_EQ(choose_tiles(stream, rates).times.link_ns, std::llround(8192 * 1024 * 2 / 10.0));
    stream.op = OverlapOp::hop;
    EXPECT_EQ(choose_tiles(stream, rates).times.link_ns, std::llround(8192 * 512 * 2 / 10.0));
}

TEST(Overlap, RefusesWhatCannotBe) {
    const TileMap map = TileMap::even(64, 2, 1);
    const auto op = OverlapOp::all_gather_gemm;
    EXPECT_THROW((void)overlap(op, map, -1, {}), UsageError);
    EXPECT_THROW((void)overlap(op, map, 1, {.bytes_per_ns = 0}), UsageError);
    EXPECT_THROW((void)overlap(op, map, 1, {.latency_ns = -1}), UsageError);
    EXPECT_THROW((void)overlap(OverlapOp::hop, map, 1, {}), UsageError);
    EXPECT_THROW((void)choose_pieces({}, {}, {}, {}), UsageError);
    EXPECT_THROW((void)choose_tiles({}, {.flops_per_ns = 0}), UsageError);
}

}  // namespace
}  // namespace vocabpipe
