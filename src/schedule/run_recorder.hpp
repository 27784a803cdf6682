// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/recorded_run.hpp"

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace vocabpipe {

/// Collects slices in any order, with full names; take() sorts and links them.
class RunRecorder {
public:
    explicit RunRecorder(std::string title) { run_.title = std::move(title); }

    /// `action` numbers the slices of a rank; `waited_for` is one of these numbers or kNone. Name,
    /// number and waited_for of `slice` are set here.
    void add(RecordedRun::Slice slice, std::string_view name, uint32_t action, uint32_t waited_for);
    /// Returns the run, as one pipeline of `ranks` ranks.
    [[nodiscard]] RecordedRun take(int ranks) &&;

private:
    uint32_t index_of(std::string_view name);

    RecordedRun run_;
    std::unordered_map<std::string, uint32_t> names_;
    std::vector<uint32_t> action_;  ///< [slice]
};

}  // namespace vocabpipe
