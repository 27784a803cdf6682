// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/executor.hpp"
#include "vocabpipe/step_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// The programs of a rank whose microbatches have several lengths: one for each order of lengths
/// that its steps had, made when a step first has it. Of these the executor keeps as many as there
/// is room for; the one that was not used for the longest time makes room for another. Which
/// program that is follows from the steps alone, so it is the same on every rank.
class LengthPrograms {
public:
    /// `plans`: as loaded into the executor, under their indices; `most`: further programs, at
    /// least 1.
    LengthPrograms(std::vector<StepPlan> plans, size_t most);

    /// The program of a plan with microbatches of these lengths ([microbatch], as
    /// StepWork::seq_lengths). Collective if it is not in the executor yet.
    [[nodiscard]] ProgramId find(Executor& executor, size_t plan,
                                 std::span<const int64_t> seq_lengths);

private:
    /// A further program, with id plans_.size() + its index.
    struct Kept {
        size_t plan = 0;
        std::vector<int64_t> seq_lengths;
        int64_t last_use = 0;
    };

    std::vector<StepPlan> plans_;
    size_t most_;
    std::vector<Kept> kept_;
    int64_t uses_ = 0;
};

}  // namespace vocabpipe
