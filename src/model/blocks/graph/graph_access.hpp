// SPDX-License-Identifier: Apache-2.0
// What the functions of LayerGraph and ModelGraph share.
#pragma once

#include "src/model/blocks/graph/graph_record.hpp"
#include "src/model/blocks/graph/operation.hpp"
#include "vocabpipe/layer_graph.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace vocabpipe {

[[nodiscard]] inline std::string text(int64_t number) {
    return std::to_string(number);
}

/// Throws UsageError that names the function that the user wrote, and the layer.
[[noreturn]] void refuse(const GraphRecord& record, const std::string& why);
/// The same for an earlier layer than the one that is being recorded.
[[noreturn]] void refuse(const GraphRecord& record, int layer, const std::string& why);
void check_columns(const GraphRecord& record, const std::string& what, int64_t columns,
                   int64_t expected);
/// The shape with its number of kv_heads. Throws UsageError for heads of attention that cannot be.
[[nodiscard]] kernels::AttentionShape checked_heads(const GraphRecord& record,
                                                    const std::string& what,
                                                    kernels::AttentionShape shape);

/// Makes values, and looks at them.
struct LayerGraph::Access {
    /// The number of a value, which must be one of this graph.
    static int id(const LayerGraph& graph, LayerValue x);
    static LayerValue make(LayerGraph& graph, std::unique_ptr<Operation> operation,
                           const std::vector<LayerValue>& inputs, int64_t rows, int64_t columns,
                           const std::string& name);
    /// With as many rows as the first input.
    static LayerValue make(LayerGraph& graph, std::unique_ptr<Operation> operation,
                           const std::vector<LayerValue>& inputs, int64_t columns,
                           const std::string& name) {
        return make(graph, std::move(operation), inputs, inputs.front().rows(), columns, name);
    }
    /// Rows of a sequence for operations that need whole sequences: 0: its tokens.
    static int64_t sequence_rows(const LayerGraph& graph, LayerValue x) {
        return graph.record_.seq_length > 0 ? x.rows() : 0;
    }
    static void record(LayerGraph& graph, const LayerForward& forward);
    /// Refuses values that nothing reads; `outputs`: nodes that leave the graph.
    static void check_read(const GraphRecord& record, const std::vector<int>& outputs);
};

}  // namespace vocabpipe
