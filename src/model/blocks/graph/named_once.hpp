// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/blocks/graph/graph_access.hpp"
#include "src/model/parameter_source.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace vocabpipe {

/// Hands on the parameters of a record, and refuses those that files could not tell apart: of one
/// name, if they are not shared, or differ.
class NamedOnce final : public ParameterSource {
public:
    explicit NamedOnce(ParameterSource& source) : source_(source) {}
    /// The record under construction, for messages.
    void belongs_to(const GraphRecord& record) { record_ = &record; }

    Parameter* next(LogicalParameter parameter) override {
        std::set<std::string> names{parameter.name};
        for (const FilePart& part : parameter.parts) names.insert(part.name);
        for (const std::string& name : names) {
            const auto [first, is_new] =
                named_.emplace(name, Named{parameter.rows, parameter.cols, record_->shared});
            if (is_new) continue;
            const Named& other = first->second;
            if (record_->shared.empty() || other.shared != record_->shared) {
                refuse(*record_, "two parameters have the name " + name);
            }
            if (other.rows == parameter.rows && other.cols == parameter.cols) continue;
            refuse(*record_, "the shared parameter " + name + " has " +
                                 std::to_string(parameter.rows) + " x " +
                                 std::to_string(parameter.cols) + " elements here and " +
                                 std::to_string(other.rows) + " x " + std::to_string(other.cols) +
                                 " elsewhere");
        }
        return source_.next(std::move(parameter));
    }

private:
    struct Named {
        int64_t rows, cols;
        std::string shared;
    };

    ParameterSource& source_;
    const GraphRecord* record_ = nullptr;
    std::map<std::string, Named> named_;
};

}  // namespace vocabpipe
