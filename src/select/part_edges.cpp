// SPDX-License-Identifier: Apache-2.0
#include "src/select/part_edges.hpp"

#include <algorithm>
#include <bit>

namespace vocabpipe {

PartIndex::PartIndex(std::span<const PartNode> nodes) : nodes_(nodes) {
    if (nodes.empty()) return;
    const auto span = static_cast<uint64_t>(nodes.back().node) + 1;
    shift_ = static_cast<int>(std::bit_width(span / (nodes.size() / kPerStep + 1)));
    starts_.resize(step_of(nodes.back().node) + 2);
    size_t at = 0;
    for (size_t step = 0; step < starts_.size(); ++step) {
        while (at < nodes.size() && step_of(nodes[at].node) < step) ++at;
        starts_[step] = static_cast<uint32_t>(at);
    }
}

std::optional<uint32_t> PartIndex::find(int64_t node) const {
    const size_t step = step_of(node);
    if (step + 1 >= starts_.size()) return std::nullopt;
    const auto begin = nodes_.begin() + starts_[step];
    const auto end = nodes_.begin() + starts_[step + 1];
    const auto found =
        std::lower_bound(begin, end, node, [](const PartNode& a, int64_t b) { return a.node < b; });
    if (found == end || found->node != node) return std::nullopt;
    return static_cast<uint32_t>(found - nodes_.begin());
}

PartEdges::PartEdges(MemoryBudget& memory, std::span<const PartNode> nodes, uint64_t most_bytes)
    : index_(nodes),
      most_(nodes.empty() ? 0 : std::min(most_bytes, memory.left()) / kEntryBytes),
      lease_(memory, most_bytes == UINT64_MAX ? 0 : most_ * kEntryBytes, "a part's edges"),
      begins_(nodes.size()),
      lengths_(nodes.size()) {
    if (most_bytes == UINT64_MAX) return;
    others_.reserve(most_);
    similarities_.reserve(most_);
}

bool PartEdges::add(std::span<const PartEntry> entries) {
    for (size_t i = 0; i < entries.size();) {
        const int64_t node = entries[i].node.value();
        const auto at = index_.find(node);
        for (; i < entries.size() && entries[i].node.value() == node; ++i) {
            const auto other = at ? index_.find(entries[i].other.value()) : std::nullopt;
            if (!other) continue;
            if (others_.size() == most_) {
                others_ = {};
                similarities_ = {};
                return false;
            }
            // The entries before may have ended within the row.
            if (lengths_[*at]++ == 0) begins_[*at] = others_.size();
            others_.push_back(*other);
            similarities_.push_back(entries[i].similarity);
        }
    }
    return true;
}

void PartEdges::read_from(MessageRuns& runs, int64_t run) {
    runs_ = &runs;
    run_ = run;
    std::ranges::fill(lengths_, 0);
    uint64_t number = 0;
    runs.read<PartEntry>(run, [&](std::span<const PartEntry> entries) {
        for (const PartEntry& entry : entries) {
            if (const auto at = index_.find(entry.node.value())) {
                if (lengths_[*at]++ == 0) begins_[*at] = number;
            }
            ++number;
        }
    });
}

}  // namespace vocabpipe
