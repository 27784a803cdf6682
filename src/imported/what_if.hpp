// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/imported/step_times.hpp"
#include "vocabpipe/explain.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::imported {

/// What a recorded run does not say itself.
struct WhatIfOptions {
    /// Share of the output layer and the loss in the passes of the last stage, from 0 to below 1.
    /// None: what the last stage takes longer than the median of the others, if there are three
    /// stages or more.
    std::optional<double> output_layer_share;
};

/// A step of another schedule with the mean times of the run.
struct Alternative {
    std::string schedule;              ///< name of its family
    VocabMode mode = VocabMode::none;  ///< what happens to the vocabulary layers
    int64_t step_ns = 0;               ///< makespan, simulated
    double activations = 0;  ///< largest number of microbatches' activations on a rank, in shares
                             ///< of a rank's layers
};

/// What would have changed the length of a recorded step.
struct WhatIf {
    int64_t measured_ns = 0;  ///< of the run
    int64_t own_ns = 0;       ///< simulated with the time and the gap of every single pass
    int64_t mean_ns = 0;      ///< simulated with the mean time of each kind of pass
    /// No order of the same passes on the same ranks takes less: the work of a rank, what must come
    /// before its first pass, and without I and W also what must come after its last.
    int64_t bound_ns = 0;
    int64_t gapless_ns = 0;  ///< simulated without the gaps before passes
    int64_t even_ns = 0;     ///< with no pass longer than the median of its kind and stage
    /// [rank] simulated with the passes of one rank as fast as the median rank; own_ns where they
    /// are no slower.
    std::vector<int64_t> without_slow_rank_ns;
    double output_layer_share = 0;  ///< that was used; 0: none is known
    bool share_is_estimated = false;
    std::vector<Alternative> alternatives;  ///< shortest first
};

/// Throws as step_times().
[[nodiscard]] WhatIf what_if(const RecordedRun& run, const WhatIfOptions& options = {});

/// A way in which the step could have gone.
struct Outcome {
    std::string condition;  ///< "without these gaps"
    int64_t ns = 0;         ///< length of the step
};
/// Those that other passes on the same ranks would have had: no gaps, even passes, and each rank
/// that makes the step half a percent longer or more as fast as the median rank.
[[nodiscard]] std::vector<Outcome> outcomes(const WhatIf& found);

/// The alternatives as a table.
struct AlternativeTable {
    /// A schedule with all shares of the vocabulary.
    struct Row {
        std::string schedule;
        std::vector<const Alternative*> of_mode;  ///< one per mode; null: not simulated
        double activations = 0;                   ///< the largest of them
    };
    std::vector<VocabMode> modes;  ///< of the columns
    std::vector<Row> rows;         ///< in the order of the alternatives
};
/// `found` must outlive it.
[[nodiscard]] AlternativeTable alternative_table(const WhatIf& found);

/// What the other schedules are simulated with, as a sentence without its end.
[[nodiscard]] std::string alternatives_text(const WhatIf& found, const TimeText& time);

/// "-12.3 %": by how much a length differs from another.
[[nodiscard]] std::string change_text(int64_t ns, int64_t from_ns);

/// Lines of text, each with its line end.
[[nodiscard]] std::string to_text(const WhatIf& found, const TimeText& time);

}  // namespace vocabpipe::imported
