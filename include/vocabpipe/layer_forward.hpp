// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

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
    friend LayerValue operator+(const LayerValue& a, const LayerValue& b);
    LayerValue(std::shared_ptr<LayerGraph*> graph, int id, int64_t columns)
        : graph_(std::move(graph)), id_(id), columns_(columns) {}

    std::shared_ptr<LayerGraph*> graph_;  ///< of the layer; null where the layer is complete
    int id_;
    int64_t columns_;
};

/// What a layer of your own computes from its input, x (N, h), by functions of `graph`; returns
/// the layer's output (N, h). The library calls it whenever it counts, builds or saves the layer,
/// from several threads at once, and never in a pass: it must do the same every time, and change
/// nothing. layer_graph.hpp has the functions.
using LayerForward = std::function<LayerValue(LayerGraph& graph, LayerValue x)>;

}  // namespace vocabpipe
