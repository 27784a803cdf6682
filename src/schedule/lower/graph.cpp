// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/graph.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace vocabpipe::lowering {

namespace {

uint64_t hash_of(const Group& group) {
    uint64_t hash = static_cast<uint64_t>(group.axis) << 32 ^ static_cast<uint32_t>(group.root);
    for (const int rank : group.ranks) {
        hash = (hash ^ static_cast<uint64_t>(rank)) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

}  // namespace

Graph::Graph(int ranks) : ranks_(static_cast<size_t>(ranks)), last_pass_(ranks_, kNoNode) {
    flow_.passes.resize(ranks_);
}

// --- nodes and parts -----------------------------------------------------------------------------

uint32_t Graph::add_node(Lane lane) {
    flow_.nodes.push_back({static_cast<uint32_t>(flow_.parts.size()), 0, lane, 0});
    return static_cast<uint32_t>(flow_.nodes.size() - 1);
}

Part& Graph::add_part(uint32_t node, int rank, Do what, uint32_t item) {
    Part part;
    part.rank = static_cast<uint16_t>(rank);
    part.what = what;
    part.item = item;
    flow_.parts.push_back(part);
    ++flow_.nodes[node].part_count;
    return flow_.parts.back();
}

uint32_t Graph::append_pass(int rank, const Pass& pass) {
    auto& list = flow_.passes[static_cast<size_t>(rank)];
    const uint32_t node = add_node(Do::pass);
    add_part(node, rank, Do::pass, static_cast<uint32_t>(list.size()));
    list.push_back(pass);
    uint32_t& last = last_pass_[static_cast<size_t>(rank)];
    if (last != kNoNode) flow_.edges.emplace_back(last, node);
    last = node;
    return node;
}

void Graph::append_operands(uint32_t pass_node, std::span<const uint32_t> more) {
    if (more.empty()) return;
    Part& part = pass_part(pass_node);
    const Op op = flow_.passes[part.rank][part.item].op;
    const auto own = static_cast<std::ptrdiff_t>(flow_.operands.size());
    flow_.operands.resize(flow_.operands.size() + part.operand_count);
    std::copy_n(flow_.operands.begin() + part.first_operand, part.operand_count,
                flow_.operands.begin() + own);
    const size_t always = pass_traits(op).operands;
    if (part.operand_count < always) {
        flow_.operands.resize(static_cast<size_t>(own) + always, kNoBuffer);
    }
    flow_.operands.insert(flow_.operands.end(), more.begin(), more.end());
    const size_t count = flow_.operands.size() - static_cast<size_t>(own);
    if (count > UINT8_MAX) {
        throw UsageError("lowering: a pass of stage " +
                         std::to_string(flow_.passes[part.rank][part.item].stage) + " has " +
                         std::to_string(count) +
                         " buffers, at most 255 are possible; use more stages");
    }
    part.first_operand = static_cast<uint32_t>(own);
    part.operand_count = static_cast<uint8_t>(count);
}

// --- edges ---------------------------------------------------------------------------------------

void Graph::add_edge(uint32_t before, uint32_t after) {
    flow_.edges.emplace_back(before, after);
}

void Graph::add_streamed_edge(uint32_t before, uint32_t after) {
    flow_.streamed.resize(flow_.edges.size(), false);
    flow_.streamed.push_back(true);
    add_edge(before, after);
}

void Graph::post_ahead(uint32_t message, uint32_t consumer, int passes) {
    const uint32_t posted_with = passes_before(consumer, passes);
    if (posted_with != kNoNode && first_part(posted_with).item > 0) {
        add_edge(posted_with - 1, message);
    }
}

/// The pass `count` passes before another one on its rank.
uint32_t Graph::passes_before(uint32_t pass_node, int count) const {
    const Part& part = first_part(pass_node);
    const std::vector<Pass>& list = flow_.passes[part.rank];
    if (static_cast<uint32_t>(count) > part.item) return kNoNode;
    uint32_t position = part.item;
    while (count > 0 && position > 0) count -= list[--position].op == Op::R ? 0 : 1;
    return count == 0 ? pass_node - (part.item - position) : kNoNode;
}

// --- buffers, groups, reductions -----------------------------------------------------------------

uint32_t Graph::add_buffer(int rank, int64_t bytes, Purpose purpose, Buffer::Space space) {
    if (bytes <= 0) return kNoBuffer;
    flow_.buffers.push_back({static_cast<uint16_t>(rank), purpose, space, bytes, 0, {}});
    return static_cast<uint32_t>(flow_.buffers.size() - 1);
}

uint16_t Graph::group(Group wanted) {
    const uint64_t hash = hash_of(wanted);
    const auto [begin, end] = groups_.equal_range(hash);
    for (auto at = begin; at != end; ++at) {
        if (flow_.groups[at->second] == wanted) return at->second;
    }
    if (flow_.groups.size() > UINT16_MAX) {
        throw UsageError(
            "lowering: " + std::to_string(ranks_) +
            " ranks need more than 65536 groups of communication; use at most 32000 ranks");
    }
    const auto index = static_cast<uint16_t>(flow_.groups.size());
    groups_.emplace(hash, index);
    flow_.groups.push_back(std::move(wanted));
    return index;
}

uint16_t Graph::pair(int source, int destination) {
    const uint64_t key =
        static_cast<uint64_t>(source) * ranks_ + static_cast<uint64_t>(destination);
    const auto known = pair_groups_.find(key);
    if (known != pair_groups_.end()) return known->second;
    const uint16_t index = group({{source, destination}, -1});
    pair_groups_.emplace(key, index);
    return index;
}

uint16_t Graph::add_reduction(Reduction reduction) {
    if (flow_.reductions.size() > UINT16_MAX) {
        throw UsageError(
            "lowering: a step can have at most 65536 different reductions, but the pieces of the "
            "gradient buckets are more; use longer ones (LowerOptions::bucket_piece)");
    }
    flow_.reductions.push_back(std::move(reduction));
    return static_cast<uint16_t>(flow_.reductions.size() - 1);
}

uint16_t Graph::reduction(Reduction wanted, uint16_t first) {
    const auto found = std::find(flow_.reductions.begin() + first, flow_.reductions.end(), wanted);
    if (found == flow_.reductions.end()) return add_reduction(std::move(wanted));
    return static_cast<uint16_t>(found - flow_.reductions.begin());
}

}  // namespace vocabpipe::lowering
