// SPDX-License-Identifier: Apache-2.0
// What both halves of a GraphPlan need: scratch columns, and how nodes are read.
#pragma once

#include "src/model/blocks/graph/graph_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe::graph_plan {

inline constexpr int kNone = -1;

/// Scratch that is in use from step `first` to step `last`.
struct Use {
    int first = kNone;
    int last = kNone;

    void add(int step) {
        first = first == kNone ? step : std::min(first, step);
        last = std::max(last, step);
    }
    [[nodiscard]] bool overlaps(const Use& other) const {
        return first <= other.last && other.first <= last;
    }
};

/// Columns rounded up, so that tensors begin where vectors can be loaded.
inline int64_t aligned(int64_t columns) {
    constexpr int64_t kMultiple = 32;
    return (columns + kMultiple - 1) / kMultiple * kMultiple;
}

/// Places scratch tensors from column `begin` on, those in use at the same time beside each other.
/// Returns the end of all; `begin` if there are none. `Slot`: ValueSlot or GradientSlot.
template <class Slot>
int64_t place_scratch(std::vector<Slot>& slots, const std::vector<Use>& uses, int64_t begin) {
    std::vector<size_t> placed;  // by first column
    int64_t end = begin;
    for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].place != Slot::Place::scratch || uses[i].first == kNone) continue;
        int64_t column = begin;
        for (const size_t other : placed) {
            if (!uses[i].overlaps(uses[other])) continue;
            if (column + slots[i].columns <= slots[other].first_column) break;
            column = std::max(column, aligned(slots[other].first_column + slots[other].columns));
        }
        slots[i].first_column = column;
        end = std::max(end, column + slots[i].columns);
        placed.push_back(i);
        std::ranges::sort(placed, {}, [&](size_t one) { return slots[one].first_column; });
    }
    return end;
}

/// How many nodes read each node, and whether it is an output; twice counts twice.
inline std::vector<int> count_reads(const std::vector<GraphNode>& nodes, const GraphEnds& ends) {
    std::vector<int> reads(nodes.size());
    for (const int output : ends.outputs) ++reads[index_of(output)];
    for (const GraphNode& node : nodes) {
        for (const int input : node.inputs) ++reads[index_of(input)];
    }
    return reads;
}

/// Whether no stage may end between two nodes. Only then may one operation compute both: its bits
/// may be others than those of two, and must not depend on where a model is cut.
inline bool in_one_layer(const std::vector<GraphNode>& nodes, int one, int other) {
    return nodes[index_of(one)].layer == nodes[index_of(other)].layer;
}

/// Makes the forward half of a plan: what F does, where its values are, and what a selective R
/// makes again.
void plan_forward(const std::vector<GraphNode>& nodes, const GraphEnds& ends, GraphPlan& plan);

}  // namespace vocabpipe::graph_plan
