// SPDX-License-Identifier: Apache-2.0
#include "src/select/greedy.hpp"

#include "src/select/memory_budget.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <span>

namespace vocabpipe {

namespace {

constexpr uint64_t kEntryBytes = sizeof(uint32_t) + sizeof(int32_t);

struct Candidate {
    int64_t gain;
    uint32_t at;  ///< index in the part; ascends with the id

    /// Whether it comes after `other`, for a heap with the first one on top.
    bool operator<(const Candidate& other) const {
        return gain != other.gain ? gain < other.gain : at > other.at;
    }
};

/// Finds the samples of a part by id: a table has the first index for every few ids.
class PartIndex {
public:
    explicit PartIndex(const std::vector<PartNode>& nodes) : nodes_(nodes) {
        const auto span = static_cast<uint64_t>(nodes.back().node) + 1;
        shift_ = static_cast<int>(std::bit_width(span / (nodes.size() / kPerStep + 1)));
        starts_.resize(step_of(nodes.back().node) + 2);
        size_t at = 0;
        for (size_t step = 0; step < starts_.size(); ++step) {
            while (at < nodes.size() && step_of(nodes[at].node) < step) ++at;
            starts_[step] = static_cast<uint32_t>(at);
        }
    }
    /// None if the sample is not in the part.
    [[nodiscard]] std::optional<uint32_t> find(int64_t node) const {
        const size_t step = step_of(node);
        if (step + 1 >= starts_.size()) return std::nullopt;
        const auto begin = nodes_.begin() + starts_[step];
        const auto end = nodes_.begin() + starts_[step + 1];
        const auto found = std::lower_bound(
            begin, end, node, [](const PartNode& a, int64_t b) { return a.node < b; });
        if (found == end || found->node != node) return std::nullopt;
        return static_cast<uint32_t>(found - nodes_.begin());
    }

private:
    static constexpr size_t kPerStep = 4;
    [[nodiscard]] size_t step_of(int64_t node) const { return static_cast<size_t>(node >> shift_); }

    const std::vector<PartNode>& nodes_;
    int shift_ = 0;
    std::vector<uint32_t> starts_;
};

/// Row entries with both ends in the part.
class PartEdges {
public:
    /// Reserves all memory at once: growing would take three times as much.
    PartEdges(uint64_t most_bytes, size_t nodes) : most_(most_bytes / kEntryBytes) {
        begins_.reserve(nodes + 1);
        if (most_bytes == UINT64_MAX) return;
        others_.reserve(most_);
        similarities_.reserve(most_);
    }

    [[nodiscard]] bool held() const { return held_; }
    [[nodiscard]] bool has_room(size_t entries) const { return others_.size() + entries <= most_; }
    void begin_row() { begins_.push_back(others_.size()); }
    void add(uint32_t other, int32_t similarity) {
        others_.push_back(other);
        similarities_.push_back(similarity);
    }
    void end() {
        begins_.push_back(others_.size());
        held_ = true;
    }
    /// Frees the entries: rows must be read again.
    void give_up() { *this = PartEdges(0, 0); }
    template <typename Use>
    void for_each(uint32_t at, const Use& use) const {
        for (size_t i = begins_[at]; i < begins_[at + 1]; ++i) use(others_[i], similarities_[i]);
    }

private:
    uint64_t most_;
    bool held_ = false;
    std::vector<uint64_t> begins_;
    std::vector<uint32_t> others_;
    std::vector<int32_t> similarities_;
};

}  // namespace

GreedyBytes GreedyBytes::of(int64_t nodes, int64_t entries) {
    // Heap entry, begin of the row, index, whether it is chosen, result.
    constexpr uint64_t kPerNode = sizeof(Candidate) + sizeof(uint64_t) + 2 + 1 + sizeof(int64_t);
    return {.nodes = static_cast<uint64_t>(nodes) * kPerNode,
            .edges = static_cast<uint64_t>(entries) * kEntryBytes};
}

std::vector<int64_t> greedy(SelectContext& context, GraphRows& rows, std::vector<PartNode>& nodes,
                            int64_t count, uint64_t edge_bytes,
                            const std::function<bool(int64_t)>& may_be_in) {
    std::vector<int64_t> chosen;
    if (nodes.empty() || count <= 0) return chosen;
    const MemoryLease of_nodes(context.memory, GreedyBytes::of(std::ssize(nodes), 0).nodes,
                               "a part's samples");
    const uint64_t room = std::min(edge_bytes, context.memory.left());
    const MemoryLease of_edges(context.memory, room == UINT64_MAX ? 0 : room, "a part's edges");
    const PartIndex index(nodes);
    PartEdges edges(room, nodes.size());
    const auto look_up = [&](int64_t neighbour) {
        return may_be_in(neighbour) ? index.find(neighbour) : std::nullopt;
    };
    bool fits = true;
    for (size_t at = 0; at < nodes.size() && fits; ++at) {
        const GraphRow row = rows.at(nodes[at].node);
        edges.begin_row();
        for (size_t i = 0; i < row.degree() && fits; ++i) {
            const auto other = look_up(row.neighbours[i]);
            if (!other) continue;
            fits = edges.has_room(1);
            if (fits) edges.add(*other, row.similarities[i]);
        }
        if (at % 65536 == 0) {
            context.report("rows of a part", static_cast<int64_t>(at), std::ssize(nodes));
        }
    }
    fits ? edges.end() : edges.give_up();

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
        const auto lower = [&](uint32_t other, int32_t similarity) {
            if (!done[other]) nodes[other].gain -= context.objective.beta * similarity;
        };
        if (edges.held()) {
            edges.for_each(at, lower);
            continue;
        }
        const GraphRow row = rows.at(node.node);
        for (size_t i = 0; i < row.degree(); ++i) {
            if (const auto other = look_up(row.neighbours[i])) lower(*other, row.similarities[i]);
        }
    }
    return chosen;
}

}  // namespace vocabpipe
