// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/dataflow.hpp"
#include "src/schedule/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace vocabpipe::lowering {

inline constexpr uint32_t kNoNode = UINT32_MAX;

/// Builds a Dataflow: nodes with a part for each participating rank, buffers, groups and edges. It
/// knows neither schedules nor layers.
class Graph {
public:
    /// For `ranks` pipeline ranks.
    explicit Graph(int ranks);

    /// A node without parts; the parts of a node are added before the next node.
    uint32_t add_node(Lane lane);
    /// A node in the usual lane of the action.
    uint32_t add_node(Do what) { return add_node(traits(what).lane); }

    /// Adds the action of `rank` in the node, with its buffers. `item`: see Action::item.
    template <Do what>
    Part& add_part(uint32_t node, int rank, uint32_t item, const OperandsOf<what>& operands) {
        Part& part = add_part(node, rank, what, item);
        set(part, operands);
        return part;
    }

    /// Adds a pass after the last one of its rank; set_operands() adds its operands.
    uint32_t append_pass(int rank, const Pass& pass);
    /// Sets the operands of a pass of this kind.
    template <Op op>
    void set_operands(uint32_t pass_node, const OperandsOf<op>& operands) {
        set(pass_part(pass_node), operands);
    }
    /// The same for a stage of a graph, with its tensors (StageModule) behind them.
    template <Op op>
    void set_operands(uint32_t pass_node, const OperandsOf<op>& operands,
                      std::span<const uint32_t> tensors) {
        set_operands<op>(pass_node, operands);
        if (tensors.empty()) return;
        Part& part = pass_part(pass_node);
        flow_.operands.resize(part.first_operand + kOperandCount<OperandsOf<op>>, kNoBuffer);
        flow_.operands.insert(flow_.operands.end(), tensors.begin(), tensors.end());
        part.operand_count = static_cast<uint8_t>(flow_.operands.size() - part.first_operand);
    }
    /// Adds buffers behind the operands of a pass, which have been set.
    void append_operands(uint32_t pass_node, std::span<const uint32_t> more);
    [[nodiscard]] Part& pass_part(uint32_t pass_node) {
        return flow_.parts[flow_.nodes[pass_node].first_part];
    }
    /// The pass appended last; kNoNode: none yet.
    [[nodiscard]] uint32_t last_pass(int rank) const {
        return last_pass_[static_cast<size_t>(rank)];
    }

    /// `before` completes before `after` starts.
    void add_edge(uint32_t before, uint32_t after);
    /// The same, but `after` may start with the first rows of `before`.
    void add_streamed_edge(uint32_t before, uint32_t after);
    /// Posts the receive of pass `consumer` `passes` passes before it and not earlier, because its
    /// buffer would live for nothing. Recomputations do not count: compared to a transfer they may
    /// be short.
    void post_ahead(uint32_t message, uint32_t consumer, int passes);

    /// Returns kNoBuffer if bytes <= 0.
    uint32_t add_buffer(int rank, int64_t bytes, Purpose purpose,
                        Buffer::Space space = Buffer::Space::arena);
    [[nodiscard]] PlannedBuffer& buffer(uint32_t id) { return flow_.buffers[id]; }

    /// Index of a group; equal groups share one. Throws UsageError beyond 65,536, which needs more
    /// than 32,000 ranks: each has a group with either neighbor.
    uint16_t group(Group wanted);
    /// The group of a message, found by one look-up instead of a search among all groups.
    uint16_t pair(int source, int destination);
    /// Adds a reduction without looking for an equal one. Throws UsageError beyond 65,536, which
    /// only pieces of gradient buckets reach.
    uint16_t add_reduction(Reduction reduction);
    /// Index of a reduction, which is shared with an equal one numbered `first` or higher.
    uint16_t reduction(Reduction wanted, uint16_t first);
    [[nodiscard]] const Reduction& reduction(uint16_t index) const {
        return flow_.reductions[index];
    }

    /// Returns the dataflow; the graph is empty afterwards.
    [[nodiscard]] Dataflow take() { return std::move(flow_); }

private:
    Part& add_part(uint32_t node, int rank, Do what, uint32_t item);
    template <typename T>
    void set(Part& part, const T& operands) {
        const auto ids = stored(operands);
        size_t count = ids.size();
        while (count > kAlwaysStored<T> && ids[count - 1] == kNoBuffer) --count;
        part.first_operand = static_cast<uint32_t>(flow_.operands.size());
        part.operand_count = static_cast<uint8_t>(count);
        flow_.operands.insert(flow_.operands.end(), ids.begin(),
                              ids.begin() + static_cast<std::ptrdiff_t>(count));
    }
    [[nodiscard]] const Part& first_part(uint32_t node) const {
        return flow_.parts[flow_.nodes[node].first_part];
    }
    // The listed passes of a rank are consecutive nodes.
    [[nodiscard]] uint32_t passes_before(uint32_t pass_node, int count) const;

    Dataflow flow_;
    size_t ranks_;
    std::unordered_map<uint64_t, uint16_t> pair_groups_;  ///< source * ranks + destination
    std::unordered_multimap<uint64_t, uint16_t> groups_;  ///< by hash_of()
    std::vector<uint32_t> last_pass_;                     ///< [rank]
};

}  // namespace vocabpipe::lowering
