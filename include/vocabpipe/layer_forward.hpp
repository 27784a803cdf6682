// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace vocabpipe {

class LayerGraph;
class ModelGraph;

/// A tensor of a layer, with a row per token, or of a model, before there is memory for it. Made by
/// the functions of a LayerGraph or a ModelGraph.
class LayerValue {
public:
    /// Columns of every row.
    [[nodiscard]] int64_t columns() const { return columns_; }
    /// Rows in a sequence; 1 in a layer, which does not know how many tokens a sequence has.
    [[nodiscard]] int64_t rows() const { return rows_; }

private:
    friend class LayerGraph;
    friend LayerValue operator+(const LayerValue& a, const LayerValue& b);
    LayerValue(std::shared_ptr<LayerGraph*> graph, int id, int64_t rows, int64_t columns)
        : graph_(std::move(graph)), id_(id), rows_(rows), columns_(columns) {}

    std::shared_ptr<LayerGraph*> graph_;  ///< of the layer; null where the layer is complete
    int id_;
    int64_t rows_;
    int64_t columns_;
};

/// What a layer of your own computes from its input, x (N, h), by functions of `graph`; returns
/// the layer's output (N, h). The library calls it whenever it counts, builds or saves the layer,
/// from several threads at once, and never in a pass: it must do the same every time, and change
/// nothing. layer_graph.hpp has the functions.
using LayerForward = std::function<LayerValue(LayerGraph& graph, LayerValue x)>;

/// What a model of your own computes, from its tokens or columns to its loss or to the output
/// layer. The library calls it as a LayerForward. model_graph.hpp has the functions.
using ModelForward = std::function<void(ModelGraph& graph)>;

}  // namespace vocabpipe
