// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/ordering.hpp"

#include "src/schedule/successors.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace vocabpipe::lowering {

namespace {

/// Until when the lanes beside compute are taken. Starts in order of time need nothing else to
/// follow a launch order.
class Lanes {
public:
    Lanes(const Dataflow& flow, CommunicationOrder order)
        : flow_(flow),
          order_(order),
          until_ns_(flow.passes.size() * static_cast<size_t>(kLanes), 0) {}

    [[nodiscard]] int64_t free_ns(const Node& node) {
        int64_t free = 0;
        each(node, [&](int64_t until) { free = std::max(free, until); });
        return free;
    }
    void take(const Node& node, int64_t until_ns) {
        each(node, [&](int64_t& until) { until = until_ns; });
    }

private:
    template <typename Visit>
    void each(const Node& node, Visit&& visit) {
        if (node.lane == Lane::compute || order_ == CommunicationOrder::lanes) return;
        const bool shares = order_ == CommunicationOrder::serial && node.lane != Lane::local;
        const auto lane = static_cast<size_t>(shares ? Lane::collective : node.lane);
        for (uint32_t p = node.first_part; p < node.first_part + node.part_count; ++p) {
            visit(until_ns_[flow_.parts[p].rank * static_cast<size_t>(kLanes) + lane]);
        }
    }

    const Dataflow& flow_;
    CommunicationOrder order_;
    std::vector<int64_t> until_ns_;  ///< [rank * kLanes + lane]
};

}  // namespace

std::vector<Place> order_globally(const Dataflow& flow, CommunicationOrder order) {
    const size_t count = flow.nodes.size();
    Lanes lanes(flow, order);
    Successors successors(count, flow.edges);

    using Entry = std::pair<int64_t, uint32_t>;  // ready time, node: ties go to the node made first
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> ready;
    std::vector<Place> places(count);
    for (uint32_t node = 0; node < count; ++node) {
        if (successors.missing[node] == 0) ready.emplace(0, node);
    }
    uint32_t done = 0;
    while (!ready.empty()) {
        const auto [start, node] = ready.top();
        ready.pop();
        const Node& n = flow.nodes[node];
        if (const int64_t free = lanes.free_ns(n); free > start) {
            ready.emplace(free, node);
            continue;
        }
        const int64_t end = start + n.duration_ns;
        lanes.take(n, end);
        places[node] = {done++, start, end};
        for (const uint32_t next : successors.of(node)) {
            // start_ns collects the latest predecessor until the node itself is placed.
            places[next].start_ns = std::max(places[next].start_ns, end);
            if (--successors.missing[next] == 0) ready.emplace(places[next].start_ns, next);
        }
    }
    if (done != count) {
        throw UsageError(
            "the schedule cannot finish: its passes and their communication wait for each other");
    }
    return places;
}

}  // namespace vocabpipe::lowering
