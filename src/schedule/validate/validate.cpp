// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/validate.hpp"

#include "src/schedule/validate/parts.hpp"

#include <string>
#include <utility>

namespace vocabpipe {

std::string Violation::message() const {
    std::string where = rank < 0 ? "schedule" : "rank " + std::to_string(rank);
    if (index >= 0) where += ", position " + std::to_string(index);
    if (!pass.empty()) where += ", " + pass;
    return where + (pass.empty() ? ": " : " ") + reason;
}

std::optional<Violation> find_violation(const Schedule& schedule) {
    if (auto violation = validation::shape_violation(schedule)) return violation;
    if (auto violation = validation::structure_violation(schedule)) return violation;
    return validation::execution_violation(schedule);
}

void validate(const Schedule& schedule) {
    if (auto violation = find_violation(schedule)) throw ScheduleError(*std::move(violation));
}

}  // namespace vocabpipe
