// SPDX-License-Identifier: Apache-2.0
// The one order in which a device with streams gets the actions of a program.
#include "src/runtime/loaded_program.hpp"
#include "src/schedule/ops.hpp"
#include "tests/support/schedule_cases.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/tile_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace vocabpipe::testing {
namespace {

constexpr std::array kRanks{2, 3, 4};

/// What a bucket's axis adds up, in parts of one size.
GradientBucket bucket_of(GradientBucket::Of of, int stage, Axis axis, const Mesh& mesh) {
    GradientBucket bucket{.of = of, .stage = stage, .axis = axis, .first = {}};
    for (int i = 0; i <= mesh.size_of(axis); ++i) bucket.first.push_back(64 * i);
    return bucket;
}

StepSizes some_sizes(const Schedule& schedule, int replicas, int tensor) {
    StepSizes sizes;
    sizes.tokens = 24;
    sizes.hidden = 8;
    sizes.report_bytes = 64;
    sizes.replicas = replicas;
    sizes.tensor = tensor;
    sizes.stages.assign(static_cast<size_t>(schedule.stages), {.saved = 100, .for_weight = 50});
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        sizes.shards.push_back({.exp_logits = 24 * schedule.output.rows(rank) * 4});
    }
    if (replicas * tensor == 1) return sizes;
    const Mesh mesh = sizes.mesh(schedule.ranks);
    sizes.buckets.resize(static_cast<size_t>(schedule.ranks));
    for (int stage = 0; stage < schedule.stages; ++stage) {
        auto& buckets =
            sizes.buckets[static_cast<size_t>(schedule.rank_of_stage[static_cast<size_t>(stage)])];
        if (replicas > 1)
            buckets.push_back(bucket_of(GradientBucket::Of::stage, stage, Axis::data, mesh));
        if (tensor > 1)
            buckets.push_back(bucket_of(GradientBucket::Of::stage, stage, Axis::data_tensor, mesh));
    }
    return sizes;
}

std::vector<Program> programs_of(const ScheduleCase& c, int microbatches, int replicas, int tensor,
                                 int64_t tokens = 24, int pieces = 1, int expert = 1) {
    const Schedule schedule = vocabpipe::make_schedule(
        c.family,
        {.ranks = c.ranks, .microbatches = microbatches, .vocab_mode = c.mode, .vocab_size = 53});
    TableCosts costs = TableCosts::uniform(c.ranks, schedule.stages, 1000, 2000, 500);
    costs.slices = replicas * tensor;
    costs.latency_ns = 30;
    costs.communication = CommunicationOrder::launches;
    StepSizes sizes = some_sizes(schedule, replicas, tensor);
    sizes.tokens = tokens;
    sizes.expert = expert;
    sizes.has_experts.assign(static_cast<size_t>(schedule.stages), expert > 1);
    return lower(schedule, sizes, costs, {.pieces = pieces});
}

bool is_pass(const Program& program, uint32_t action) {
    return program.actions[action].what == Do::pass;
}

/// The program with its actions in another order, all on one lane: each begins when the one before
/// it has ended.
Program in_one_queue(const Program& program, const std::vector<uint32_t>& order) {
    Program queue = program;
    std::vector<uint32_t> place(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) {
        place[order[i]] = i;
        queue.actions[i] = program.actions[order[i]];
        queue.actions[i].lane = Lane::compute;
    }
    for (Edge& edge : queue.edges) edge = {place[edge.before], place[edge.after]};
    return queue;
}

/// The same with streamed edges, in the order in which the host enqueues pieces: a pass is a part
/// per piece that it needs and one per piece that it makes, and what may start behind the latter
/// does, as StepRunner has it. Every part and piece is an action of its own.
class QueueOfPieces {
public:
    QueueOfPieces(const Program& program, std::vector<uint32_t> order, int64_t tokens)
        : program_(program),
          edges_(program, true),
          order_(std::move(order)),
          tokens_(tokens),
          given_(order_.size(), 0),
          before_(order_.size()) {
        for (const Edge& edge : program.edges) before_[edge.after].push_back(edge.before);
        while (next_ < order_.size()) {
            const uint32_t action = order_[next_];
            if (is_pass(program, action)) {
                ++next_;
                add_pass(action);
            } else {
                while (given_[action] < parts(action)) give(action);
                ++next_;
            }
        }
    }

    [[nodiscard]] Program program() const {
        Program queue = program_;
        queue.actions.clear();
        queue.edges.clear();
        queue.streamed.clear();
        std::vector<std::vector<uint32_t>> place(order_.size());
        for (const auto& [action, part] : queue_) {
            place[action].push_back(static_cast<uint32_t>(queue.actions.size()));
            Action one = program_.actions[action];
            one.lane = Lane::compute;
            one.order = one.order * 128 + static_cast<uint32_t>(part);
            one.pieces = 1;
            queue.actions.push_back(one);
        }
        for (uint32_t i = 0; i < program_.edges.size(); ++i) {
            const auto [before, after] = program_.edges[i];
            if (!std::ranges::binary_search(program_.streamed, i)) {
                queue.edges.push_back({place[before].back(), place[after].front()});
            } else if (is_pass(program_, before)) {
                for (int piece = 0; piece < parts(after); ++piece) {
                    const int made = needed_of(before) + needed(before, rows(after, piece)) - 1;
                    queue.edges.push_back({place[before][static_cast<size_t>(made)],
                                           place[after][static_cast<size_t>(piece)]});
                }
            } else {
                for (size_t piece = 0; piece < place[before].size(); ++piece) {
                    queue.edges.push_back({place[before][piece], place[after][piece]});
                }
            }
        }
        return queue;
    }
    /// Pieces that were given within a pass.
    [[nodiscard]] int within_passes() const { return within_passes_; }

private:
    static int64_t end(const TileMap& map, int piece) { return map.rows(0, piece).end; }
    [[nodiscard]] TileMap map(int pieces) const { return TileMap::even(tokens_, 1, pieces); }
    [[nodiscard]] int64_t rows(uint32_t action, int piece) const {
        return end(map(program_.actions[action].pieces), piece);
    }
    [[nodiscard]] int made_by(uint32_t pass) const {
        int pieces = 0;
        for (const uint32_t taker : edges_.takers_of(pass)) {
            pieces = std::max<int>(pieces, program_.actions[taker].pieces);
        }
        return pieces;
    }
    [[nodiscard]] int needed_of(uint32_t pass) const {
        const uint32_t source = edges_.source_of(pass);
        return source == StreamEdges::kNone ? 0 : program_.actions[source].pieces;
    }
    [[nodiscard]] int needed(uint32_t pass, int64_t end) const {
        return map(made_by(pass)).needed(0, {.first = 0, .end = end});
    }
    [[nodiscard]] int parts(uint32_t action) const {
        return is_pass(program_, action) ? std::max(1, needed_of(action) + made_by(action))
                                         : program_.actions[action].pieces;
    }
    void give(uint32_t action) { queue_.emplace_back(action, given_[action]++); }

    void add_pass(uint32_t pass) {
        const int made = made_by(pass);
        while (given_[pass] < parts(pass) - made) give(pass);
        for (int piece = 0; piece < made; ++piece) {
            give(pass);
            start_behind(pass, end(map(made), piece));
        }
    }
    void start_behind(uint32_t pass, int64_t made) {
        for (; next_ < order_.size() && !is_pass(program_, order_[next_]); ++next_) {
            const uint32_t action = order_[next_];
            if (!is_communication(program_.actions[action].what)) return;
            const bool streamed = edges_.source_of(action) == pass;
            for (const uint32_t before : before_[action]) {
                if (!(streamed && before == pass) && given_[before] < parts(before)) return;
            }
            for (; given_[action] < parts(action); ++within_passes_) {
                if (streamed && rows(action, given_[action]) > made) return;
                give(action);
            }
        }
    }

    const Program& program_;
    const StreamEdges edges_;
    const std::vector<uint32_t> order_;
    const int64_t tokens_;
    std::vector<int> given_;  ///< [action] parts that are in the queue
    std::vector<std::vector<uint32_t>> before_;
    std::vector<std::pair<uint32_t, int>> queue_;  ///< action, part
    size_t next_ = 0;
    int within_passes_ = 0;
};

class EnqueueOrder : public ::testing::TestWithParam<ScheduleCase> {
protected:
    void each(const std::function<void(const std::vector<Program>&)>& check) const {
        const ScheduleCase& c = GetParam();
        for (const int microbatches : {c.ranks - 1, 2 * c.ranks + 1}) {
            for (const auto& [replicas, tensor, expert] :
                 {std::tuple{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {2, 1, 2}}) {
                SCOPED_TRACE(std::to_string(microbatches) + " microbatches, " +
                             std::to_string(replicas) + " replicas, " + std::to_string(tensor) +
                             " tensor ranks, " + std::to_string(expert) + " expert ranks");
                check(programs_of(c, microbatches, replicas, tensor, 24, 1, expert));
            }
        }
    }
};

TEST_P(EnqueueOrder, KeepsEveryEdgeAndTheOrderOfPassesAndOfCommunication) {
    each([](const std::vector<Program>& programs) {
        for (const Program& program : programs) {
            const std::vector<uint32_t> order = enqueue_order(program);
            ASSERT_EQ(order.size(), program.actions.size());
            std::vector<uint32_t> place(order.size(), UINT32_MAX);
            std::array<uint32_t, 3> last{};
            for (uint32_t i = 0; i < order.size(); ++i) {
                place[order[i]] = i;
                uint32_t& before =
                    last[static_cast<size_t>(traits(program.actions[order[i]].what).kind)];
                EXPECT_TRUE(before == 0 || before < order[i])
                    << program.name_of(program.actions[order[i]]);
                before = order[i];
            }
            EXPECT_EQ(std::count(place.begin(), place.end(), UINT32_MAX), 0);
            for (const Edge& edge : program.edges) {
                EXPECT_LT(place[edge.before], place[edge.after]);
            }
        }
    });
}

TEST_P(EnqueueOrder, PutsNothingBehindAPassThatItNeedNotWaitFor) {
    each([](const std::vector<Program>& programs) {
        for (const Program& program : programs) {
            const std::vector<uint32_t> order = enqueue_order(program);
            // What comes between two passes waits for the first of them, or is behind something of
            // its kind that does.
            std::vector<std::vector<uint32_t>> before(order.size());
            for (const Edge& edge : program.edges) before[edge.after].push_back(edge.before);
            std::vector<bool> waits(order.size(), false);
            std::array<bool, 3> behind{};
            bool any_pass = false;
            for (const uint32_t action : order) {
                if (is_pass(program, action)) {
                    std::fill(waits.begin(), waits.end(), false);
                    behind.fill(false);
                    waits[action] = any_pass = true;
                    continue;
                }
                bool& same = behind[static_cast<size_t>(traits(program.actions[action].what).kind)];
                waits[action] = same =
                    same || std::any_of(before[action].begin(), before[action].end(),
                                        [&](uint32_t b) { return bool{waits[b]}; });
                if (any_pass) {
                    EXPECT_TRUE(waits[action]) << program.name_of(program.actions[action]);
                }
            }
        }
    });
}

/// Passes of a stage that tensor ranks share, or whose experts expert ranks share, are
/// communication, too: their steps come at the place of the pass.
TEST_P(EnqueueOrder, EndsEvenIfTheHostWaitsForThePartnersOfEveryCommunication) {
    each([](const std::vector<Program>& programs) {
        std::vector<Program> queues;
        for (const Program& program : programs) {
            queues.push_back(in_one_queue(program, enqueue_order(program)));
        }
        EXPECT_EQ(find_deadlock(queues).value_or(""), "");
    });
}

/// Nor if it waited for those of every piece, within passes, too.
TEST_P(EnqueueOrder, OfPiecesEndsHoweverTheHostWaits) {
    constexpr int64_t kTokens = 168;
    const ScheduleCase& c = GetParam();
    for (const int pieces : {2, 5}) {
        SCOPED_TRACE(std::to_string(pieces) + " pieces");
        int within_passes = 0;
        std::vector<Program> queues;
        for (const Program& program : programs_of(c, 2 * c.ranks + 1, 1, 1, kTokens, pieces)) {
            const QueueOfPieces queue(program, enqueue_order(program), kTokens);
            within_passes += queue.within_passes();
            queues.push_back(queue.program());
        }
        EXPECT_EQ(find_deadlock(queues).value_or(""), "");
        EXPECT_GT(within_passes, 0);
    }
}

TEST(ReportOfProgram, IsAPassWhateverTheItemsOfCommunicationAre) {
    const ScheduleCase one = every_schedule(kRanks).front();
    for (Program program : programs_of(one, 3, 1, 1)) {
        const auto found = std::ranges::find_if(program.actions, [&](const Action& action) {
            return action.what == Do::pass && program.passes[action.item].op == Op::Report;
        });
        ASSERT_NE(found, program.actions.end());
        for (Action& action : program.actions) {  // a microbatch may have the number of a pass
            if (action.what != Do::pass) action.item = found->item;
        }
        EXPECT_EQ(LoadedProgram(program, false).report, found - program.actions.begin());
    }
}

INSTANTIATE_TEST_SUITE_P(Every, EnqueueOrder, ::testing::ValuesIn(every_schedule(kRanks)),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace vocabpipe::testing
