// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/plan.hpp"

#include <cstddef>
#include <mutex>
#include <string_view>

namespace vocabpipe {

/// Counts one phase of a plan for PlanOptions::progress, from any thread.
class PlanProgress {
public:
    /// `options` must outlive it.
    PlanProgress(const PlanOptions& options, std::string_view phase, size_t all)
        : report_(options.progress), phase_(phase), all_(all) {}
    void step() {
        const std::lock_guard lock(mutex_);
        ++done_;
        if (report_) report_(phase_, done_, all_);
    }
    /// So many steps are needed in all, as is known now.
    void expect(size_t all) {
        const std::lock_guard lock(mutex_);
        all_ = all;
    }

private:
    std::mutex mutex_;
    const std::function<void(std::string_view, size_t, size_t)>& report_;
    const std::string_view phase_;
    size_t done_ = 0;
    size_t all_;
};

}  // namespace vocabpipe
