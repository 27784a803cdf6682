// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace vocabpipe {

class LayerGraph;

/// A tensor (N, columns) of a layer, with a row per token, before there is memory for it. Made by
/// the functions of a LayerGraph.
class LayerValue {
public:
    /// Columns of every row.
    [[nodiscard]] int64_t columns() const { return columns_; }

private:
    friend class LayerGraph;
    friend LayerValue operator+(LayerValue a, LayerValue b);
    LayerValue(LayerGraph& graph, int id, int64_t columns)
        : graph_(&graph), id_(id), columns_(columns) {}

    LayerGraph* graph_;
    int id_;
    int64_t columns_;
};

/// What a layer of your own computes from its input, x (N, h), by functions of `graph`; returns
/// the layer's output (N, h). It is called whenever the library counts or builds the layer, long
/// before a step, and must then do the same every time. layer_graph.hpp has the functions.
using LayerForward = std::function<LayerValue(LayerGraph& graph, LayerValue x)>;

}  // namespace vocabpipe
