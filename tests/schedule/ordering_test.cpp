// SPDX-License-Identifier: Apache-2.0
// The global order of graphs of a few nodes, derived by hand.
#include "src/schedule/lower/ordering.hpp"

#include "vocabpipe/error.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace vocabpipe::lowering {
namespace {

using enum CommunicationOrder;

/// A graph for three ranks that grows node by node.
class SmallFlow {
public:
    SmallFlow() { flow_.passes.resize(3); }

    uint32_t add(Lane lane, int64_t ns, std::initializer_list<uint16_t> ranks,
                 StreamTimes stream = {}, uint8_t pieces = 1) {
        flow_.nodes.push_back({.first_part = static_cast<uint32_t>(flow_.parts.size()),
                               .part_count = static_cast<uint32_t>(ranks.size()),
                               .lane = lane,
                               .duration_ns = ns,
                               .stream = stream});
        for (const uint16_t rank : ranks) {
            Part part;
            part.rank = rank;
            part.pieces = pieces;
            flow_.parts.push_back(part);
        }
        return static_cast<uint32_t>(flow_.nodes.size() - 1);
    }
    void edge(uint32_t before, uint32_t after, bool streamed = false) {
        flow_.edges.emplace_back(before, after);
        flow_.streamed.push_back(streamed);
    }
    [[nodiscard]] std::vector<Place> places(CommunicationOrder order) const {
        return order_globally(flow_, order);
    }
    /// Begin and end of every node.
    [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> times(CommunicationOrder order) const {
        std::vector<std::pair<int64_t, int64_t>> all;
        for (const Place& place : places(order)) all.emplace_back(place.start_ns, place.end_ns);
        return all;
    }

private:
    Dataflow flow_;
};

using NodeTimes = std::vector<std::pair<int64_t, int64_t>>;

TEST(GlobalOrder, LetsLocalActionsRunBesideCommunicationInEveryOrder) {
    SmallFlow flow;
    flow.add(Lane::local, 100, {0});
    flow.add(Lane::forward, 10, {0, 1});
    for (const CommunicationOrder order : kCommunicationOrders) {
        EXPECT_EQ(flow.times(order), (NodeTimes{{0, 100}, {0, 10}})) << to_string(order);
    }
}

TEST(GlobalOrder, KeepsLocalActionsOfARankApartButWhereLanesEndOnTheirOwn) {
    SmallFlow flow;
    flow.add(Lane::local, 100, {0});
    flow.add(Lane::local, 50, {0});
    flow.add(Lane::local, 20, {1});
    EXPECT_EQ(flow.times(lanes), (NodeTimes{{0, 100}, {0, 50}, {0, 20}}));
    for (const CommunicationOrder order : {streams, launches, serial}) {
        EXPECT_EQ(flow.times(order), (NodeTimes{{0, 100}, {100, 150}, {0, 20}}))
            << to_string(order);
    }
}

// Two messages of rank 0 in one lane, one in another, a collective of rank 1, and a message
// between ranks 1 and 2. All are ready at 0.
TEST(GlobalOrder, LetsALaneOrASerialRankDoOneCommunicationAtATime) {
    SmallFlow flow;
    flow.add(Lane::forward, 10, {0, 1});
    flow.add(Lane::forward, 20, {0, 2});
    flow.add(Lane::backward, 40, {0, 1});
    flow.add(Lane::collective, 80, {1, 2});
    EXPECT_EQ(flow.times(lanes), (NodeTimes{{0, 10}, {0, 20}, {0, 40}, {0, 80}}));
    for (const CommunicationOrder order : {streams, launches}) {
        EXPECT_EQ(flow.times(order), (NodeTimes{{0, 10}, {10, 30}, {0, 40}, {0, 80}}))
            << to_string(order);
    }
    // From 10 on ranks 0 and 2 are at it and rank 1 waits; from 30 on 0 and 1, and rank 2 waits.
    EXPECT_EQ(flow.times(serial), (NodeTimes{{0, 10}, {10, 30}, {30, 70}, {70, 150}}));
}

TEST(GlobalOrder, TakesNoLaneForPasses) {
    SmallFlow flow;
    flow.add(Lane::compute, 100, {0});
    flow.add(Lane::collective, 10, {0, 1});
    const uint32_t second = flow.add(Lane::compute, 5, {0});
    flow.edge(0, second);
    for (const CommunicationOrder order : kCommunicationOrders) {
        EXPECT_EQ(flow.times(order), (NodeTimes{{0, 100}, {0, 10}, {100, 105}}))
            << to_string(order);
    }
}

TEST(GlobalOrder, IsByTimeAndThenByNode) {
    SmallFlow flow;
    const uint32_t late = flow.add(Lane::compute, 7, {0});
    const uint32_t long_pass = flow.add(Lane::compute, 30, {0});
    const uint32_t short_pass = flow.add(Lane::compute, 20, {1});
    flow.edge(long_pass, late);   // ready at 30
    flow.edge(short_pass, late);  // and not at 20
    const uint32_t with_it = flow.add(Lane::compute, 1, {2});
    flow.edge(long_pass, with_it);
    const std::vector<Place> places = flow.places(lanes);
    EXPECT_EQ(flow.times(lanes), (NodeTimes{{30, 37}, {0, 30}, {0, 20}, {30, 31}}));
    EXPECT_EQ(places[long_pass].order, 0U);
    EXPECT_EQ(places[short_pass].order, 1U);
    EXPECT_EQ(places[late].order, 2U);
    EXPECT_EQ(places[with_it].order, 3U);
}

TEST(GlobalOrder, RefusesACycle) {
    SmallFlow flow;
    const uint32_t first = flow.add(Lane::compute, 1, {0});
    const uint32_t second = flow.add(Lane::compute, 1, {1});
    flow.edge(first, second);
    flow.edge(second, first);
    EXPECT_THROW((void)flow.places(lanes), UsageError);
}

/// A pass of 100 that makes its first rows `first` before its end, a message of four pieces of
/// 10, and a pass that needs `with_last` after the last rows; then a message of the same lane.
SmallFlow streamed_flow(int64_t first, int64_t user_ns, int64_t with_last) {
    SmallFlow flow;
    const uint32_t maker = flow.add(Lane::compute, 100, {0}, {.after_first_ns = first});
    const uint32_t message =
        flow.add(Lane::forward, 40, {0, 1}, {.with_last_ns = 10, .piece_ns = 10}, 4);
    const uint32_t user = flow.add(Lane::compute, user_ns, {1}, {.with_last_ns = with_last});
    flow.edge(maker, message, true);
    flow.edge(message, user, true);
    return flow;
}

// The first rows are there at 70 and the last at 100, so the message ends at 110 and the pass,
// which begins at 80, at 180.
TEST(GlobalOrder, StartsWithTheFirstRowsAndEndsAfterTheLast) {
    EXPECT_EQ(streamed_flow(30, 100, 70).times(lanes), (NodeTimes{{0, 100}, {70, 110}, {80, 180}}));
    // A short pass waits for the last rows, with which it does 40 of its 50.
    EXPECT_EQ(streamed_flow(30, 50, 40).times(lanes), (NodeTimes{{0, 100}, {70, 110}, {80, 150}}));
    for (const CommunicationOrder order : {streams, launches, serial}) {
        EXPECT_EQ(streamed_flow(30, 100, 70).times(order),
                  (NodeTimes{{0, 100}, {100, 140}, {140, 240}}))
            << to_string(order);
    }
}

// The first rows are there at 10, but from 60 on the message ends no later either.
TEST(GlobalOrder, StartsAMessageNoEarlierThanItGainsFromIt) {
    EXPECT_EQ(streamed_flow(90, 100, 70).times(lanes), (NodeTimes{{0, 100}, {60, 110}, {70, 180}}));
}

// Another message of the lane is ready at 75, when the first has not been given all of its rows.
TEST(GlobalOrder, KeepsALaneUntilAMessageHasBeenGivenItsRows) {
    SmallFlow flow = streamed_flow(30, 100, 70);
    const uint32_t before = flow.add(Lane::compute, 75, {2});
    const uint32_t other = flow.add(Lane::forward, 10, {0, 2});
    flow.edge(before, other);
    EXPECT_EQ(flow.times(lanes)[other], std::pair(int64_t{100}, int64_t{110}));
    EXPECT_EQ(flow.times(streams)[other], std::pair(int64_t{75}, int64_t{85}));
}

// What travels whole waits for the last rows, which a pass may have made before its end.
TEST(GlobalOrder, StartsWhatTravelsWholeWithTheLastRows) {
    SmallFlow flow;
    const uint32_t maker =
        flow.add(Lane::compute, 100, {0}, {.after_first_ns = 50, .after_last_ns = 20});
    const uint32_t sum = flow.add(Lane::collective, 40, {0, 1});
    flow.edge(maker, sum, true);
    EXPECT_EQ(flow.times(lanes), (NodeTimes{{0, 100}, {80, 120}}));
    EXPECT_EQ(flow.times(streams), (NodeTimes{{0, 100}, {100, 140}}));
}

}  // namespace
}  // namespace vocabpipe::lowering
