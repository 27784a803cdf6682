// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/pass_costs.hpp"
#include "vocabpipe/schedule.hpp"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

// Lists and figures of other schedulers: data/schedule_oracles.json.

namespace vocabpipe::testing {

/// The whole file, read once per program.
[[nodiscard]] const nlohmann::json& oracles();

/// The lists of a case as a schedule of transformer passes alone. Throws std::invalid_argument for
/// what is no list of F, B, I, W and pairs.
[[nodiscard]] Schedule schedule_of(const nlohmann::json& oracle);

/// Per rank, as in the file: "0F0 (0F1;3B0)".
[[nodiscard]] std::vector<std::string> lists_of(const Schedule& schedule);

/// What a family returns before the vocabulary is inserted: no passes of the vocabulary, no rows.
[[nodiscard]] Schedule without_vocabulary(Schedule schedule);

/// F, I and W of every stage alike, B = I + W, `latency` per hop.
[[nodiscard]] PassCosts costs_of(const nlohmann::json& cost, int64_t latency);

}  // namespace vocabpipe::testing
