// SPDX-License-Identifier: Apache-2.0
#include "src/model/frozen_parameters.hpp"

#include "vocabpipe/error.hpp"

#include <cstddef>
#include <string>

namespace vocabpipe {

void check_frozen(const std::vector<LogicalParameter>& parameters,
                  const std::vector<bool>& frozen) {
    if (frozen.empty()) return;
    if (frozen.size() != parameters.size()) {
        throw UsageError("frozen parameters: " + std::to_string(frozen.size()) +
                         " entries, but the model has " + std::to_string(parameters.size()) +
                         " parameters; give one for each, or none");
    }
    bool any_trained = false;
    for (size_t id = 0; id < parameters.size(); ++id) {
        const LogicalParameter& p = parameters[id];
        any_trained = any_trained || (!frozen[id] && !p.correction_bias);
        if (!p.gradient_with_previous || frozen[id] == frozen[id - 1]) continue;
        const std::string& before = parameters[id - 1].name;
        throw UsageError("frozen parameters: " + (frozen[id] ? p.name : before) +
                         " is frozen, but " + (frozen[id] ? before : p.name) +
                         " is not, and one operator makes the gradients of both; freeze both or "
                         "neither (--param-group 'PATTERN:freeze')");
    }
    if (!any_trained) {
        throw UsageError(
            "frozen parameters: all are, so that there is nothing to train; leave out a "
            "--param-group 'PATTERN:freeze', or use --skip-train");
    }
}

}  // namespace vocabpipe
