// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/pass_costs.hpp"

#include "tests/schedules/oracles.hpp"

#include <string_view>

namespace vocabpipe::testing {

/// F, I and W per chunk, for the formulas of docs/schedules.md, "Schedule families".
struct UnitCosts {
    int64_t f = 1, i = 1, w = 1;
    int64_t hop = 0;
};

inline PassCosts pass_costs(const UnitCosts& costs) {
    return costs_of({{"F", costs.f}, {"I", costs.i}, {"W", costs.w}}, costs.hop);
}

/// The transformer passes of a family, made without knowing any costs but equal ones.
inline Schedule transformer_passes_of(std::string_view family, ScheduleOptions options) {
    options.vocab_size = 1;
    return without_vocabulary(make_schedule(family, options));
}

}  // namespace vocabpipe::testing
