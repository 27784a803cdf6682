// SPDX-License-Identifier: Apache-2.0
#include "src/select/greedy.hpp"

#include <algorithm>
#include <cstddef>

namespace vocabpipe {

namespace {

struct Candidate {
    int64_t gain;
    uint32_t at;  ///< index in the part; ascends with the id

    /// Whether it comes after `other`, for a heap with the first one on top.
    bool operator<(const Candidate& other) const {
        return gain != other.gain ? gain < other.gain : at > other.at;
    }
};

}  // namespace

GreedyBytes GreedyBytes::of(int64_t nodes, int64_t entries) {
    // Heap entry, whether it is chosen, result.
    constexpr uint64_t kChoosing = sizeof(Candidate) + 1 + sizeof(int64_t);
    return {.nodes = static_cast<uint64_t>(nodes) *
                     (sizeof(PartNode) + PartEdges::kNodeBytes + kChoosing),
            .edges = static_cast<uint64_t>(entries) * PartEdges::kEntryBytes};
}

std::vector<int64_t> greedy(const SelectContext& context, std::vector<PartNode>& nodes,
                            int64_t count, const PartEdges& edges) {
    std::vector<int64_t> chosen;
    if (nodes.empty() || count <= 0) return chosen;
    std::vector<Candidate> heap;
    heap.reserve(nodes.size());
    for (size_t at = 0; at < nodes.size(); ++at) {
        heap.push_back({.gain = nodes[at].gain, .at = static_cast<uint32_t>(at)});
    }
    std::make_heap(heap.begin(), heap.end());
    std::vector<bool> done(nodes.size());
    const auto most = std::min<size_t>(static_cast<size_t>(count), nodes.size());
    chosen.reserve(most);
    while (chosen.size() < most) {
        std::pop_heap(heap.begin(), heap.end());
        Candidate& top = heap.back();
        const PartNode& node = nodes[top.at];
        if (top.gain != node.gain) {  // its gain was out of date
            top.gain = node.gain;
            std::push_heap(heap.begin(), heap.end());
            continue;
        }
        const uint32_t at = top.at;
        heap.pop_back();
        done[at] = true;
        chosen.push_back(node.node);
        if (chosen.size() % 65536 == 0) {
            context.report("greedy in a part", std::ssize(chosen), static_cast<int64_t>(most));
        }
        edges.for_each(at, [&](uint32_t other, int32_t similarity) {
            if (!done[other]) nodes[other].gain -= context.objective.beta * similarity;
        });
    }
    return chosen;
}

}  // namespace vocabpipe
