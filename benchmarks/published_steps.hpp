// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// One row of data/published_steps.csv: a published step of a GPT on A100 GPUs, 128 microbatches of
/// one sequence, every GPU a pipeline rank (arXiv 2411.05288v2, tables 5 and 6).
struct PublishedStep {
    /// Published results, which predictions may be compared with.
    struct Measured {
        double mfu_percent = 0;  ///< of 320 TFLOP/s, attention's masked half counted
        double step_ms = 0;      ///< implied by this MFU
        double memory_gib = 0;   ///< allocated on the rank that allocated most
    };
    std::string schedule;  ///< a family of make_schedule()
    VocabMode mode = VocabMode::none;
    int gpus = 0;
    int64_t seq_length = 0, vocab = 0, hidden = 0, heads = 0;
    int layers = 0;
    std::optional<Measured> measured;  ///< none: the run was out of memory

    /// "v-half sharded", "1f1b whole": rows whose errors share a bound.
    [[nodiscard]] std::string group() const;
    /// Plans the step only from sizes and the built-in figures of an A100. The planned memory has
    /// no reserve, as published bytes are those of tensors.
    [[nodiscard]] PlanOptions plan(const DeviceSpec& a100) const;
    /// The prediction of plan().
    [[nodiscard]] PlanRow predict(const DeviceSpec& a100) const;
    /// predict() over the measured value; `measured` must be set.
    [[nodiscard]] double time_ratio(const PlanRow& predicted) const;
    [[nodiscard]] double memory_ratio(const PlanRow& predicted) const;
};

/// Throws InputFileError.
[[nodiscard]] std::vector<PublishedStep> read_published_steps(const std::string& path);

}  // namespace vocabpipe
