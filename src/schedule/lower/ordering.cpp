// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/ordering.hpp"

#include "src/schedule/successors.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace vocabpipe::lowering {

std::vector<Place> order_globally(const Dataflow& flow) {
    const size_t count = flow.nodes.size();
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
        const int64_t end = start + flow.nodes[node].duration_ns;
        places[node] = {done++, start, end};
        for (const uint32_t next : successors.of(node)) {
            // start_ns collects the latest predecessor until the node itself is placed.
            places[next].start_ns = std::max(places[next].start_ns, end);
            if (--successors.missing[next] == 0) ready.emplace(places[next].start_ns, next);
        }
    }
    if (done != count) {
        throw UsageError(
            "the schedule cannot finish: its passes and the communication they imply "
            "wait for each other");
    }
    return places;
}

}  // namespace vocabpipe::lowering
