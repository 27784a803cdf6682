// SPDX-License-Identifier: Apache-2.0
// Derives the passes of a layer, or of a stage of a model, from its forward.
#pragma once

#include "src/model/blocks/graph/graph_record.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Memory of one or several values, one after the other. Columns are elements in a unit of the
/// microbatch (GraphNode::rows).
struct ValueSlot {
    enum class Place : uint8_t {
        input,    ///< comes from outside
        output,   ///< goes outside
        costly,   ///< kept from F on
        cheap,    ///< likewise, unless a selective recomputation makes it again
        scratch,  ///< of the pass
    };
    Place place = Place::scratch;
    int64_t columns = 0;
    int64_t first_column = 0;  ///< scratch: where it begins
    int port = 0;              ///< which input or output
};

/// Likewise of gradients.
struct GradientSlot {
    enum class Place : uint8_t {
        outside,  ///< of an output, or of an input from its later readers
        input,    ///< of an input
        kept,     ///< for W
        scratch,  ///< of I
    };
    Place place = Place::scratch;
    int64_t columns = 0;
    int64_t first_column = 0;
    int port = 0;  ///< which input; outside: which output, then which of GraphEnds::read_later
};

/// What F, and R where `recomputed`, does at one node.
struct ForwardStep {
    static constexpr int kNone = -1;

    int node;              ///< whose operation runs
    int value;             ///< the node that gets the result
    int residual = kNone;  ///< the node that is added to the result
    /// After a product: the later step that is GELU of its result, which the product may compute
    /// along. In such a GELU: the product's step.
    int gelu = kNone;
    bool for_backward = false;  ///< false: only the outputs and losses need it
    bool recomputed = false;    ///< by a selective R
};

/// What I does: an operation's gradients, or a sum of two.
struct BackwardStep {
    static constexpr int kNone = -1;

    /// Whose operation runs; none: to[0] = dy + added, a copy of dy, or 0 without dy.
    int node = kNone;
    int dy = kNone;            ///< slot; none: of a loss, or 0
    int added = kNone;         ///< slot
    std::vector<int> to = {};  ///< slot of each input's gradient; kNone: nobody needs it
    int gelu = kNone;    ///< node: to[0] is the gradient before this GELU of the product's input
    bool keeps = false;  ///< copies for a W that comes later; not in B
};

/// W of one operation.
struct WeightStep {
    int node;
    int kept;    ///< slot of dy, where W is a pass of its own
    int dy;      ///< the same in B
    int before;  ///< of B: the backward step before which it runs
    /// No BackwardStep runs its operation, because nobody needs the gradients of its inputs.
    bool alone = false;
};

/// What GraphPlan needs besides the nodes.
struct GraphEnds {
    std::vector<int> outputs;  ///< nodes
    /// Nodes that come from outside, and whose gradient begins with what later readers elsewhere
    /// have made. So it is added up in the same order wherever a model is cut.
    std::vector<int> read_later = {};
    /// Whether I keeps gradients from outside that W reads; else whoever calls W has them.
    bool keep_outside_gradients = false;
    /// Tokens in a sequence, of which the values of a part of a model have GraphNode::rows; 0: the
    /// nodes are a layer.
    int64_t seq_length = 0;
};

/// The passes of a layer, or of a stage, as lists of operations, with the memory that their tensors
/// share.
///
/// Forward: a product or norm that only a sum reads is added to the sum's other input as it is
/// made; GELU of a product is made along with it; rotary positions work in place. A value is kept
/// if a backward reads it.
///
/// Backward: operations in reverse order. A sum hands its gradient to both inputs without a copy.
/// What is added to a gradient that is there already is added by the operation itself, where it can
/// (norms), else by a sum. Gradients that W reads are kept, all others are scratch. Values that
/// depend on no weight and no input have no gradient.
struct GraphPlan {
    GraphPlan(const std::vector<GraphNode>& nodes, const GraphEnds& ends);

    std::vector<ValueSlot> values;
    std::vector<int> value_of_node;  ///< [node] slot; -1: there is never memory for it
    std::vector<ForwardStep> forward;
    /// The nodes that F copies to an output at last.
    struct Copied {
        int node = 0;
        int port = 0;
    };
    std::vector<Copied> copied_to_output;
    /// [node] Whether a selective R runs its operation, and so makes its statistics again.
    std::vector<bool> recomputed;
    std::vector<GradientSlot> gradients;
    /// [slot] Column of scratch in B, where no gradient is kept for W; of scratch and kept ones.
    std::vector<int64_t> columns_in_whole;
    std::vector<BackwardStep> backward;
    std::vector<WeightStep> weights;
    int64_t forward_columns = 0;   ///< of scratch, for F and R
    int64_t backward_columns = 0;  ///< of scratch, for I
    int64_t whole_columns = 0;     ///< of scratch, for B
    /// Columns at the beginning of F's scratch that products with a residual use meanwhile.
    int64_t product_columns = 0;
};

}  // namespace vocabpipe
