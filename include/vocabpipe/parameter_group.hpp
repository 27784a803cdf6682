// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

namespace vocabpipe {

/// Tensors with optimizer options of their own, or without an optimizer: one --param-group.
struct ParameterGroup {
    std::string text;                   ///< as given, for messages
    std::string pattern;                ///< matches names of logical tensors; * and ? as in a shell
    std::optional<float> weight_decay;  ///< none: as without the group
    float lr_multiplier = 1;            ///< of the step's learning rate
    bool freeze = false;                ///< they keep their values (ModelPartition::frozen)
};

}  // namespace vocabpipe
