// SPDX-License-Identifier: Apache-2.0
// Tables of this machine under a tiny model: all products of a team, each with a choice.
#include "src/train/profile/profile_overlap.hpp"

#include "src/train/profile/timed_experts.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace vocabpipe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using ::testing::UnorderedElementsAre;

TrainOptions tiny_team() {
    TrainOptions options;
    options.model.num_layers = 4;
    options.model.hidden_size = 32;
    options.model.ffn_hidden_size = 80;
    options.model.num_attention_heads = 4;
    options.model.seq_length = options.model.max_position_embeddings = 48;
    options.model.vocab_size = 101;
    options.micro_batch_size = 2;
    options.global_batch_size = 8;
    options.threads_per_rank = 1;
    options.train_iters = 2;
    options.command = "a test";
    options.date = "today";
    return options;
}

OverlapTable measured_table(int ranks, const TrainOptions& options) {
    OverlapTable result;
    std::mutex mutex;
    World::threads(ranks, {.timeout_seconds = 30}).run([&](Communicator& communicator) {
        OverlapTable mine = profile_overlap(communicator, options);
        const std::lock_guard lock(mutex);
        result = std::move(mine);
    });
    return result;
}

TEST(ProfileOverlap, NamesTheProductsOfATeam) {
    using Shape = std::tuple<OverlapOp, int64_t, int64_t>;
    const auto shapes = [](const TrainOptions& options, int members) {
        std::vector<Shape> list;
        for (const MeasuredOverlap& m : overlap_shapes(options, members)) {
            EXPECT_EQ(m.rows, 96);
            list.emplace_back(m.op, m.inner, m.columns);
        }
        return list;
    };
    constexpr OverlapOp kGather = OverlapOp::all_gather_gemm;
    constexpr OverlapOp kScatter = OverlapOp::gemm_reduce_scatter;
    // q, k and v: 32 + 16 + 16 columns.
    TrainOptions options = tiny_team();
    options.model.num_query_groups = 2;
    EXPECT_THAT(shapes(options, 2),
                UnorderedElementsAre(Shape{kGather, 32, 32}, Shape{kScatter, 32, 32},
                                     Shape{kGather, 32, 40}, Shape{kScatter, 40, 32},
                                     Shape{kGather, 32, 16}, Shape{kScatter, 16, 32},
                                     Shape{OverlapOp::stream_in, 32, 51}));
    options.model.gated = true;
    EXPECT_THAT(
        shapes(options, 4),
        UnorderedElementsAre(Shape{kGather, 32, 16}, Shape{kScatter, 16, 32},
                             Shape{kGather, 32, 40}, Shape{kScatter, 40, 32}, Shape{kGather, 32, 8},
                             Shape{kScatter, 8, 32}, Shape{kGather, 32, 20},
                             Shape{kScatter, 20, 32}, Shape{OverlapOp::stream_in, 32, 26}));
}

TEST(ProfileOverlap, HasTheRowsOfAContextRank) {
    TrainOptions options = tiny_team();
    options.context_parallel_size = 4;
    for (const MeasuredOverlap& m : overlap_shapes(options, 2)) EXPECT_EQ(m.rows, 24);
    EXPECT_EQ(measured_table(2, options).shapes.front().rows, 24);
    options.context_parallel_size = 5;
    EXPECT_THAT([&] { (void)measured_table(2, options); },
                ThrowsMessage<AgreedError>(HasSubstr("--context-parallel-size 5")));
}

/// Four experts, of which three ranks cannot have equally many.
TrainOptions tiny_team_of_experts() {
    TrainOptions options = tiny_team();
    set_family(options.model, "mixtral");
    options.model.tied = false;
    options.model.moe = {.experts = 4, .top_k = 2};
    return options;
}

TEST(ProfileOverlap, NamesTheLargestProductsOfExperts) {
    const auto shapes = [](int members) {
        std::vector<std::tuple<OverlapOp, int64_t, int64_t, int64_t>> list;
        for (const MeasuredOverlap& m : overlap_shapes(tiny_team_of_experts(), members)) {
            if (is_of_experts(m.op)) list.emplace_back(m.op, m.rows, m.inner, m.columns);
        }
        return list;
    };
    EXPECT_THAT(shapes(2), ElementsAre(std::tuple(OverlapOp::dispatch_gemm, 192, 32, 160),
                                       std::tuple(OverlapOp::gemm_combine, 192, 160, 32)));
    EXPECT_THAT(shapes(3), ElementsAre());
}

TEST(ProfileOverlap, MeasuresEveryShapeWithEveryNumberOfPieces) {
    for (const int ranks : {2, 3}) {
        const TrainOptions options = tiny_team_of_experts();
        const OverlapTable table = measured_table(ranks, options);
        EXPECT_EQ(table.members, ranks);
        EXPECT_EQ(table.element_bytes, 4);
        EXPECT_EQ(table.command, "a test");
        EXPECT_EQ(table.date, "today");
        EXPECT_GT(table.rates.flops_per_ns, 0);
        EXPECT_GT(table.rates.link.bytes_per_ns, 0);
        ASSERT_EQ(table.shapes.size(), overlap_shapes(options, ranks).size());
        for (const MeasuredOverlap& m : table.shapes) {
            std::vector<int> pieces;
            for (const auto& one : m.candidates) {
                pieces.push_back(one.pieces);
                EXPECT_GT(one.overlapped_ns, 0);
            }
            EXPECT_THAT(pieces, ElementsAre(1, 2, 4, 8, 16));
            EXPECT_GT(m.compute_ns, 0);
            EXPECT_GT(m.link_ns, 0);
            EXPECT_GT(m.blocking_ns, 0);
            EXPECT_EQ(m.pieces, best_pieces(m));
            EXPECT_EQ(pieces_for(table, {.op = m.op,
                                         .rows = m.rows,
                                         .inner = m.inner,
                                         .columns = m.columns,
                                         .members = ranks}),
                      m.pieces);
        }
        const auto path = std::filesystem::path(::testing::TempDir()) / "measured_overlap.json";
        write_overlap_table(path.string(), table);
        EXPECT_EQ(read_overlap_table(path.string()).shapes, table.shapes);
    }
}

// 2 members with 6 of 12 rows each; the experts of the one get all tokens of the other.
TEST(TimedOverlap, CountsTheBytesThatAMemberReceives) {
    World::threads(2, {.timeout_seconds = 30}).run([](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        const std::unique_ptr<TileLink> link = link_of_all(world, *device, world.transport());
        const auto bytes = [&](OverlapOp op) {
            return time_overlap(world, *device, *link,
                                {.op = op,
                                 .rows = 12,
                                 .inner = 16,
                                 .columns = 24,
                                 .experts = 1,
                                 .per_token = 2,
                                 .rounds = 1})
                .bytes;
        };
        EXPECT_EQ(bytes(OverlapOp::all_gather_gemm), 6 * 16 * 4);
        EXPECT_EQ(bytes(OverlapOp::gemm_reduce_scatter), 6 * 24 * 4);
        EXPECT_EQ(bytes(OverlapOp::stream_in), 12 * 16 * 4) << "all rows, at all but the first";
        EXPECT_EQ(bytes(OverlapOp::dispatch_gemm), 6 * 16 * 4);
        EXPECT_EQ(bytes(OverlapOp::gemm_combine), 6 * 24 * 4);
        // Keys and values of all rows of the other: the first member has the last rows, too.
        EXPECT_EQ(bytes(OverlapOp::gather_attention), 6 * 2 * 16 * 4);
    });
}

TEST(TimedExperts, HaveLoadsOfTheDeviationThatIsAskedFor) {
    OverlapCase c{.op = OverlapOp::dispatch_gemm, .rows = 100'000, .experts = 4, .per_token = 1};
    double fullest = 0.9;
    for (const double std : {0.0, 0.02, 0.04, 0.06}) {
        c.load_std = std;
        const ExpertLoads loads = expert_loads(2, c);
        EXPECT_NEAR(loads.std, std, 2e-3);
        // Shares from 1/8 - d to 1/8 + d; the second half of them has 1/2 + 16 d / 7.
        const double d = std / most_load_std(8) / 8;
        EXPECT_NEAR(loads.fullest, 1 + 32 * d / 7, 0.01);
        EXPECT_GT(loads.fullest, fullest);
        fullest = loads.fullest;
    }
    EXPECT_NEAR(most_load_std(8), 0.0818, 1e-4);  // of 0, 1/28, ..., 7/28
    c.load_std = most_load_std(8);
    EXPECT_THROW((void)expert_loads(2, c), UsageError);
}

TEST(TimedExperts, MakeTheSameBitsWithUnevenLoads) {
    World::threads(2, {.timeout_seconds = 30}).run([](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        const std::unique_ptr<TileLink> link = link_of_all(world, *device, world.transport());
        for (const OverlapOp op : {OverlapOp::dispatch_gemm, OverlapOp::gemm_combine}) {
            EXPECT_EQ(time_overlap(world, *device, *link,
                                   {.op = op,
                                    .pieces = 3,
                                    .rows = 200,
                                    .inner = 16,
                                    .columns = 16,
                                    .load_std = 0.07,
                                    .rounds = 1})
                          .wrong,
                      0);
        }
    });
}

TEST(ProfileOverlap, EndsOnAllRanksForWhatCannotWork) {
    TrainOptions options = tiny_team();
    EXPECT_THAT([&] { (void)measured_table(1, options); },
                ThrowsMessage<AgreedError>(HasSubstr("one rank has nobody to talk to")));
    options.device = "cuda";
    EXPECT_THAT([&] { (void)measured_table(2, options); },
                ThrowsMessage<AgreedError>(HasSubstr("use --device host")));
    options = tiny_team();
    options.model.num_attention_heads = 3;
    EXPECT_THAT([&] { (void)measured_table(2, options); },
                ThrowsMessage<AgreedError>(HasSubstr("--num-attention-heads 3")));
    options = tiny_team();
    options.terminated = [] { return 15; };
    EXPECT_THAT([&] { (void)measured_table(2, options); },
                ThrowsMessage<AgreedError>(HasSubstr("no table was written")));
}

}  // namespace
}  // namespace vocabpipe
