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

/// A value of a layer, and the operation that makes it.
struct GraphNode {
    std::unique_ptr<Operation> operation;  ///< null: the layer's input, which is the first node
    std::vector<int> inputs;               ///< nodes
    int64_t columns = 0;
    std::string name;                     ///< for messages
    std::optional<bool> recomputed = {};  ///< by a selective recomputation, where the user says
};

/// What a LayerGraph writes down while a LayerForward runs.
struct GraphRecord {
    const ModelConfig& model;
    int layer;
    ParameterSource& parameters;
    std::vector<GraphNode> nodes;  ///< every node after its inputs
};

}  // namespace vocabpipe
