// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/timeline.hpp"

#include <vector>

namespace vocabpipe {

/// Finds the span of an action. Null for an action that did not run.
class SpansByAction {
public:
    SpansByAction(const Timeline& timeline, const std::vector<Program>& programs) {
        first_.reserve(programs.size() + 1);
        first_.push_back(0);
        for (const Program& program : programs) {
            first_.push_back(first_.back() + program.actions.size());
        }
        spans_.assign(first_.back(), nullptr);
        for (const Span& span : timeline.spans) spans_[first_[span.rank] + span.action] = &span;
    }

    [[nodiscard]] const Span* of(size_t rank, uint32_t action) const {
        return spans_[first_[rank] + action];
    }

private:
    std::vector<size_t> first_;  ///< [rank]
    std::vector<const Span*> spans_;
};

}  // namespace vocabpipe
