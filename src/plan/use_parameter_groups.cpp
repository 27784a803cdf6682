// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_groups.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/plan.hpp"

#include <cstddef>
#include <utility>

namespace vocabpipe {

void use_parameter_groups(PlanOptions& options, std::vector<ParameterGroup> groups) {
    if (options.profile && !groups.empty()) {
        throw UsageError("--param-group " + groups.front().text +
                         ": a profile knows no names of tensors; use --model and --gpu");
    }
    const std::vector<LogicalParameter> tensors = logical_parameters(options.model.config);
    check_parameter_groups(groups, tensors);
    options.frozen = frozen_parameters(groups, tensors);
    options.parameter_groups = std::move(groups);
}

int64_t trained_parameter_count(const PlanOptions& options) {
    int64_t sum = 0;
    const std::vector<LogicalParameter> tensors = logical_parameters(options.model.config);
    for (size_t id = 0; id < tensors.size(); ++id) {
        const bool frozen = !options.frozen.empty() && options.frozen[id];
        if (!frozen) sum += tensors[id].rows * tensors[id].cols;
    }
    return sum;
}

}  // namespace vocabpipe
