// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/run_recorder.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <tuple>

namespace vocabpipe {

uint32_t RunRecorder::index_of(std::string_view name) {
    const auto [found, fresh] =
        names_.try_emplace(std::string(name), static_cast<uint32_t>(run_.names.size()));
    if (fresh) run_.names.emplace_back(name);
    return found->second;
}

void RunRecorder::add(RecordedRun::Slice slice, std::string_view name, uint32_t action,
                      uint32_t waited_for) {
    // "2F17" is stored as name "2F" and number 17, so that a run has few names for any number of
    // microbatches.
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    const std::string_view number = name.substr(digits);
    if (std::from_chars(number.data(), number.data() + number.size(), slice.number).ec ==
        std::errc()) {
        name = name.substr(0, digits);
    }
    slice.name = index_of(name);
    slice.waited_for = waited_for;
    run_.slices.push_back(slice);
    action_.push_back(action);
}

RecordedRun RunRecorder::take(int ranks) && {
    run_.ranks = ranks;
    run_.mesh = {.pipeline = ranks};
    std::vector<uint32_t> sorted(run_.slices.size());
    std::iota(sorted.begin(), sorted.end(), 0U);
    std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
        const auto key = [&](uint32_t i) {
            const RecordedRun::Slice& slice = run_.slices[i];
            return std::tuple(slice.rank, slice.lane, slice.begin_ns, action_[i]);
        };
        return key(a) < key(b);
    });
    std::vector<std::vector<uint32_t>> slice_of(static_cast<size_t>(ranks));  // [rank][action]
    std::vector<RecordedRun::Slice> slices;
    slices.reserve(sorted.size());
    for (const uint32_t i : sorted) {
        auto& of_rank = slice_of[run_.slices[i].rank];
        if (of_rank.size() <= action_[i]) of_rank.resize(action_[i] + 1, RecordedRun::kNone);
        of_rank[action_[i]] = static_cast<uint32_t>(slices.size());
        slices.push_back(run_.slices[i]);
    }
    for (RecordedRun::Slice& slice : slices) {
        const auto& of_rank = slice_of[slice.rank];
        slice.waited_for =
            slice.waited_for < of_rank.size() ? of_rank[slice.waited_for] : RecordedRun::kNone;
    }
    run_.slices = std::move(slices);
    return std::move(run_);
}

}  // namespace vocabpipe
