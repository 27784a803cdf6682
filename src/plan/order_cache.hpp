// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/step_model.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/schedule.hpp"

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace vocabpipe {

/// Orders passes of candidates, and keeps the transformer passes of families that search for them
/// (Generator::searches): those that differ only in their vocabulary mode share them. May be used
/// from several threads.
class OrderCache {
public:
    /// The candidate's passes in the order of its family for these costs, without those that only
    /// frozen parameters need. Throws UsageError if the family cannot order them.
    [[nodiscard]] Schedule order(const StepModel& step, const Candidate& candidate);

private:
    struct Entry {
        std::once_flag made;
        Schedule passes;
        std::exception_ptr error;
    };
    /// Ranks, microbatches, memory limit, hop, and times of all passes of stages.
    using Key = std::vector<int64_t>;

    std::mutex mutex_;
    std::map<Key, std::shared_ptr<Entry>> entries_;
};

}  // namespace vocabpipe
