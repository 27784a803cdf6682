// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::bindings {

/// What to plan, by the names that people type. Lists hold alternatives; empty: the default of
/// PlanOptions.
struct PlanRequest {
    std::string model;    ///< load_model()
    std::string gpu;      ///< load_device()
    std::string profile;  ///< file, in place of model, gpu and seq_length; empty: none
    int gpus = 1;
    int64_t global_batch_size = 0;  ///< sequences per step
    int64_t seq_length = 0;         ///< tokens per sequence
    std::optional<int64_t> vocab_size;
    std::vector<int> tensor, context, pipeline, data, expert, expert_tensor, chunks;
    std::vector<int64_t> micro_batch_size;
    std::vector<std::string> recompute, schedules, vocab_modes;
    bool overlap_pairs = false;
    std::optional<double> memory_gib;
    double moe_imbalance = 1;
    bool all_sizes = false;  ///< list_all_sizes()
    int best = 15;           ///< rows that a search proves
};

/// The options of make_plan(). Throws UsageError and InputFileError as the functions above.
[[nodiscard]] PlanOptions options_of(const PlanRequest& request);

/// The row with this index. Throws UsageError if there is none.
[[nodiscard]] const PlanRow& row_of(const Plan& plan, int64_t row);

}  // namespace vocabpipe::bindings
