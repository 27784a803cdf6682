// SPDX-License-Identifier: Apache-2.0
// Derives the passes of a layer from its forward.
#pragma once

#include "src/model/blocks/graph/graph_record.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Memory of one or several values of a layer, one after the other.
struct ValueSlot {
    enum class Place : uint8_t {
        input,    ///< x
        output,   ///< y
        costly,   ///< kept from F on
        cheap,    ///< likewise, unless a selective recomputation makes it again
        scratch,  ///< of the pass
    };
    Place place = Place::scratch;
    int64_t columns = 0;
    int64_t first_column = 0;  ///< scratch: where it begins
};

/// Likewise of gradients.
struct GradientSlot {
    enum class Place : uint8_t {
        output,   ///< dy
        input,    ///< dx
        kept,     ///< for W
        scratch,  ///< of I
    };
    Place place = Place::scratch;
    int64_t columns = 0;
    int64_t first_column = 0;
};

/// What F, and R where `recomputed`, does at one node.
struct ForwardStep {
    static constexpr int kNone = -1;

    int node;              ///< whose operation runs
    int value;             ///< the node that gets the result
    int residual = kNone;  ///< the node that is added to the result
    /// Of a product: the later step that is GELU of its result, which the product may compute
    /// along. Of such a GELU: the product's step.
    int gelu = kNone;
    bool for_backward = false;  ///< false: only the layer's output needs it
    bool recomputed = false;    ///< by a selective R
};

/// What I does: an operation's gradients, or a sum of two.
struct BackwardStep {
    static constexpr int kNone = -1;

    int node = kNone;          ///< whose operation runs; none: to[0] = dy + added, or a copy of dy
    int dy = kNone;            ///< slot
    int added = kNone;         ///< slot
    std::vector<int> to = {};  ///< slot of each input's gradient
    int gelu = kNone;  ///< node: to[0] is the gradient before this GELU of the product's input
};

/// W of one operation.
struct WeightStep {
    int node;
    int dy;  ///< slot
};

/// The passes of a layer as lists of operations, with the memory that their tensors share.
///
/// Forward: a product or norm that only a sum reads is added to the sum's other input as it is
/// made; GELU of a product is made along with it; rotary positions work in place. A value is kept
/// if a backward reads it.
///
/// Backward: operations in reverse order. A sum hands its gradient to both inputs without a copy.
/// What is added to a gradient that is there already is added by the operation itself, where it can
/// (norms), else by a sum. Gradients that W reads are kept, all others are scratch.
struct GraphPlan {
    explicit GraphPlan(const std::vector<GraphNode>& nodes);

    std::vector<ValueSlot> values;
    std::vector<int> value_of_node;  ///< [node] slot; -1: there is never memory for it
    std::vector<ForwardStep> forward;
    /// The slot that F copies to y at last; -1: none.
    int copied_to_output = -1;
    /// [node] Whether a selective R runs its operation, and so makes its statistics again.
    std::vector<bool> recomputed;
    std::vector<GradientSlot> gradients;
    std::vector<BackwardStep> backward;
    std::vector<WeightStep> weights;
    int64_t forward_columns = 0;   ///< of scratch, for F and R
    int64_t backward_columns = 0;  ///< of scratch, for I
    /// Columns at the beginning of F's scratch that products with a residual use meanwhile.
    int64_t product_columns = 0;
};

}  // namespace vocabpipe
