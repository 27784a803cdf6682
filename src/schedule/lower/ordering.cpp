// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/ordering.hpp"

#include "src/schedule/successors.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace vocabpipe::lowering {

namespace {

/// Until when the lanes other than compute are taken: by a communication that has not ended or,
/// with CommunicationOrder::lanes, that does not have all of its rows yet. Nodes are started in
/// order of time, which is a launch order already.
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
    void take(const Node& node, int64_t given_ns, int64_t end_ns) {
        const int64_t until_ns = order_ == CommunicationOrder::lanes ? given_ns : end_ns;
        each(node, [&](int64_t& until) { until = until_ns; });
    }

private:
    template <typename Visit>
    void each(const Node& node, Visit&& visit) {
        if (node.lane == Lane::compute) return;
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

/// When the rows arrive that nodes wait for along streamed edges. Used only with
/// CommunicationOrder::lanes.
class Rows {
public:
    Rows(const Dataflow& flow, CommunicationOrder order, const Successors& successors)
        : flow_(flow) {
        if (flow.streamed.empty() || order != CommunicationOrder::lanes) return;
        streamed_.assign(flow.edges.size(), false);
        std::vector<uint32_t> fill(successors.first.begin(), successors.first.end() - 1);
        for (size_t i = 0; i < flow.edges.size(); ++i) {
            const uint32_t at = fill[flow.edges[i].first]++;
            streamed_[at] = i < flow.streamed.size() && flow.streamed[i];
        }
        last_ns_.assign(flow.nodes.size(), kNone);
    }

    /// When `node` lets `next` start; `at`: index of the edge between them in the successors.
    [[nodiscard]] int64_t lets_start(uint32_t node, const Place& place, size_t at, uint32_t next) {
        if (streamed_.empty() || !streamed_[at]) return place.end_ns;
        const StreamTimes& from = flow_.nodes[node].stream;
        const int64_t last = place.end_ns - from.after_last_ns;
        last_ns_[next] = std::max(last_ns_[next], last);
        if (flow_.nodes[node].lane != Lane::compute) return place.start_ns + from.piece_ns;
        const bool whole = flow_.parts[flow_.nodes[next].first_part].pieces == 1;
        return whole ? last : place.end_ns - from.after_first_ns;
    }
    /// Earliest useful start of a communication: an earlier one would only block its lane, and end
    /// no earlier.
    [[nodiscard]] int64_t soon_enough(uint32_t node) const {
        return is_given_rows(node) ? last_ns_[node] - flow_.nodes[node].duration_ns : kNone;
    }
    /// When a communication that starts at `start` has all of its rows.
    [[nodiscard]] int64_t given_ns(uint32_t node, int64_t start) const {
        return is_given_rows(node) ? std::max(start, last_ns_[node]) : start;
    }
    [[nodiscard]] int64_t end_ns(uint32_t node, int64_t start) const {
        const Node& n = flow_.nodes[node];
        const int64_t end = start + n.duration_ns;
        const bool streams = !last_ns_.empty() && last_ns_[node] != kNone;
        return streams ? std::max(end, last_ns_[node] + n.stream.with_last_ns) : end;
    }

private:
    static constexpr int64_t kNone = INT64_MIN;

    [[nodiscard]] bool is_given_rows(uint32_t node) const {
        return !last_ns_.empty() && last_ns_[node] != kNone &&
               flow_.nodes[node].lane != Lane::compute;
    }

    const Dataflow& flow_;
    std::vector<bool> streamed_;    ///< [index into Successors::after]; empty without any
    std::vector<int64_t> last_ns_;  ///< [node] when the last rows for it arrive, or kNone
};

}  // namespace

std::vector<Place> order_globally(const Dataflow& flow, CommunicationOrder order) {
    const size_t count = flow.nodes.size();
    Lanes lanes(flow, order);
    Successors successors(count, flow.edges);
    Rows rows(flow, order, successors);

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
        const int64_t end = rows.end_ns(node, start);
        lanes.take(n, rows.given_ns(node, start), end);
        places[node] = {done++, start, end};
        for (size_t at = successors.first[node]; at < successors.first[node + 1]; ++at) {
            const uint32_t next = successors.after[at];
            // Until the node is placed, start_ns holds the end of its latest predecessor.
            int64_t& next_start = places[next].start_ns;
            next_start = std::max(next_start, rows.lets_start(node, places[node], at, next));
            if (--successors.missing[next] == 0) {
                ready.emplace(std::max(next_start, rows.soon_enough(next)), next);
            }
        }
    }
    if (done != count) {
        throw UsageError(
            "the schedule cannot finish: its passes and their communication wait for each other");
    }
    return places;
}

}  // namespace vocabpipe::lowering
