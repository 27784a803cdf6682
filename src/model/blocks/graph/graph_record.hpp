// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/graph/operation.hpp"
#include "src/model/parameter_source.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// The number of a node, or of what else graphs count in ints with -1 for none, as an index.
[[nodiscard]] inline size_t index_of(int number) {
    return static_cast<size_t>(number);
}

/// A value of a layer or of a model, and the operation that makes it.
struct GraphNode {
    std::unique_ptr<Operation> operation;  ///< null: it comes from outside
    std::vector<int> inputs;               ///< nodes
    /// Rows in a unit of the microbatch: 1 of a layer, whose unit is a token; of a model, whose
    /// unit is a sequence, as many as the value has there.
    int64_t rows = 1;
    int64_t columns = 0;
    std::string name;                     ///< for messages
    std::optional<bool> recomputed = {};  ///< by a selective recomputation, where the user says
    int layer = 0;                        ///< of a model: which part of it made the value
    double cost = 0;           ///< FLOPs of making it, moved elements among them, in a unit
    double memory_budget = 1;  ///< LayerGraph::activation_memory_budget() when it was made

    /// Elements in a unit.
    [[nodiscard]] int64_t size() const { return rows * columns; }
};

/// What a LayerGraph writes down while a LayerForward runs.
struct GraphRecord {
    const ModelConfig& model;
    int layer;
    ParameterSource& parameters;
    std::vector<GraphNode> nodes = {};  ///< every node after its inputs
    /// Tokens in a sequence of a model. 0: a layer, whose values all have the tokens' rows.
    int64_t seq_length = 0;
    // The nodes of a model's two ends, or -1.
    int embedded = -1;
    int output = -1;
    int layer_of_output = 0;
    std::string shared = {};   ///< ModelGraph::share(): the group; empty: none
    double memory_budget = 1;  ///< of the nodes that follow
};

}  // namespace vocabpipe
