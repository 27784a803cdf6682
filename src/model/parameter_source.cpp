// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_source.hpp"

#include "vocabpipe/error.hpp"

#include <numeric>
#include <utility>

namespace vocabpipe {

Parameter* ParameterList::next(LogicalParameter parameter) {
    all_.push_back(std::move(parameter));
    return nullptr;
}

Parameter* ParameterCount::next(LogicalParameter parameter) {
    all_.push_back({.cut = parameter.cut,
                    .elements = parameter.rows * parameter.cols,
                    .correction_bias = parameter.correction_bias});
    return nullptr;
}

void ElementCount::add(const ParameterCount::Counted& parameter) {
    (parameter.correction_bias ? correction_biases_
                               : elements_[static_cast<size_t>(parameter.cut)]) +=
        parameter.elements;
}

int64_t ElementCount::total() const {
    return std::accumulate(elements_.begin(), elements_.end(), int64_t{0});
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
