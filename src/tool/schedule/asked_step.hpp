// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/step/costs/cost_source.hpp"
#include "src/tool/schedule/schedule_flags.hpp"
#include "vocabpipe/length_count.hpp"
#include "vocabpipe/make_order.hpp"
#include "vocabpipe/microbatch_lengths.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// The model whose sizes a step has.
struct SizedModel {
    int64_t layers = 0;      ///< 0: not known, as in some profiles
    int64_t seq_length = 0;  ///< of the longest microbatch
    int64_t micro_batch_size = 0;
};

/// A step as flags and files describe it, with nothing left to read or to decide.
struct AskedStep {
    std::string title;               ///< "1f1b one_barrier, 4 ranks, 8 microbatches"
    bool default_mode = false;       ///< no flag and no file says what happens to the vocabulary
    std::string name;                ///< of the family, or of the file
    std::optional<Schedule> passes;  ///< those of a file
    bool adds_recomputation = false;
    ScheduleOptions options;  ///< but costs, which the prices decide
    Schedule placed;          ///< stages and vocabulary rows on their ranks
    std::unique_ptr<const Profile> profile;
    std::unique_ptr<const CostSource> costs;  ///< may refer to the profile
    std::string costs_of;                     ///< where the costs come from, for people
    int ticks_per_unit = 0;                   ///< if costs are figures; 0: costs are nanoseconds
    std::optional<int64_t> piece_ns;          ///< TableCosts::piece_ns; none: that of the costs
    std::optional<CommunicationOrder> communication;  ///< likewise
    bool free_vocabulary_collectives = false;
    bool wait_for_reports = true;
    int cores = 0;  ///< that all ranks share; 0: one or more for each
    SizedModel model;
    /// Lengths of the microbatches. The first is that of the costs, and may have no microbatch;
    /// empty: all microbatches have the length of the costs.
    std::vector<LengthCount> lengths;
    std::vector<LengthShares> shorter;  ///< what passes of the lengths but the first take

    /// Refers to `passes`.
    [[nodiscard]] OrderSource source() const {
        return {
            .name = name, .passes = passes ? &*passes : nullptr, .recompute = adds_recomputation};
    }
};

/// The step of a built-in schedule, or of one from a .csv or .json file, of at most about
/// `most_passes` (0: make_schedule()'s limit). UsageError, InputFileError, OutOfMemoryError.
[[nodiscard]] AskedStep asked_step(const std::string& schedule, const ScheduleFlags& flags,
                                   int64_t most_passes = 0);

}  // namespace vocabpipe::tool
