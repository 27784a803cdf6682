// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_source.hpp"

#include "vocabpipe/error.hpp"

#include <utility>

namespace vocabpipe {

Parameter* ParameterList::next(LogicalParameter parameter) {
    all_.push_back(std::move(parameter));
    return nullptr;
}

Parameter* ParameterCount::next(LogicalParameter parameter) {
    (parameter.correction_bias ? correction_biases_
                               : elements_[static_cast<size_t>(parameter.cut)]) +=
        parameter.rows * parameter.cols;
    return nullptr;
}

Parameter* HeldParameters::next(LogicalParameter parameter) {
    if (!any_) return nullptr;
    if (rest_.empty() || rest_.front().name != parameter.name) {
        throw Error(ExitCode::failed,
                    "parameter " + parameter.name + ": the rank holds " +
                        (rest_.empty() ? "no more" : rest_.front().name) +
                        " there; stages must ask in the order of stage_parameters()");
    }
    Parameter& held = rest_.front();
    rest_ = rest_.subspan(1);
    return &held;
}

}  // namespace vocabpipe
