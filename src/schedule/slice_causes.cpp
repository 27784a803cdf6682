// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/slice_causes.hpp"

#include <algorithm>
#include <unordered_map>

namespace vocabpipe {

namespace {

constexpr uint32_t kNoSlice = RecordedRun::kNone;

using Slice = RecordedRun::Slice;

/// Whether the lane runs one action after the other; communication only starts in order, and
/// overlaps.
bool runs_to_completion(Lane lane) {
    return lane == Lane::compute || lane == Lane::local;
}

/// Causes within each rank, from dependencies and lanes.
std::vector<uint32_t> own_causes(const RecordedRun& run) {
    const std::vector<Slice>& slices = run.slices;
    std::vector<uint32_t> cause(slices.size(), kNoSlice);
    const auto end_of = [&](uint32_t i) { return i == kNoSlice ? -1 : slices[i].end_ns; };
    for (uint32_t i = 0; i < slices.size(); ++i) {
        cause[i] = slices[i].waited_for;
        if (i == 0 || slices[i].rank != slices[i - 1].rank ||
            slices[i].lane != slices[i - 1].lane) {
            continue;
        }
        const uint32_t before = runs_to_completion(slices[i].lane) ? i - 1 : cause[i - 1];
        // A combine_softmax may run inside a pass that polls; then the previous action may end
        // after this one begins.
        if (end_of(before) > end_of(cause[i]) && end_of(before) <= slices[i].begin_ns) {
            cause[i] = before;
        }
    }
    return cause;
}

}  // namespace

std::vector<SliceCause> slice_causes(const RecordedRun& run) {
    const std::vector<uint32_t> own = own_causes(run);
    std::vector<SliceCause> causes(own.size());
    const auto ready_ns = [&](uint32_t i) {
        return own[i] == kNoSlice ? -1
                                  : std::min(run.slices[own[i]].end_ns, run.slices[i].begin_ns);
    };
    std::unordered_map<uint32_t, uint32_t> last;  // communication to the member that was ready last
    for (uint32_t i = 0; i < own.size(); ++i) {
        if (run.slices[i].order == kNoSlice) continue;
        const auto [found, fresh] = last.try_emplace(run.slices[i].order, i);
        if (!fresh && ready_ns(i) > ready_ns(found->second)) found->second = i;
    }
    for (uint32_t i = 0; i < own.size(); ++i) {
        uint32_t member = i;
        if (run.slices[i].order != kNoSlice) {
            member = last.at(run.slices[i].order);
            // If it was ready at the same time, this slice did not wait for it.
            if (ready_ns(member) == ready_ns(i)) member = i;
        }
        causes[i] = {own[member], member};
    }
    return causes;
}

std::vector<PathPiece> critical_path(const RecordedRun& run,
                                     const std::vector<SliceCause>& causes) {
    uint32_t at = kNoSlice;
    for (uint32_t i = 0; i < run.slices.size(); ++i) {
        if (run.slices[i].lane != Lane::compute) continue;
        if (at == kNoSlice || run.slices[i].end_ns > run.slices[at].end_ns) at = i;
    }
    std::vector<PathPiece> path;
    // Clocks of ranks differ slightly, so the path ends at a slice that is not earlier than its
    // successor.
    int64_t until = INT64_MAX;
    while (at != kNoSlice && path.size() < run.slices.size()) {
        const int64_t begin = std::min(run.slices[causes[at].member].begin_ns, until);
        const int64_t end = std::min(run.slices[at].end_ns, until);
        path.push_back({at, begin, std::max(begin, end)});
        until = begin;
        at = causes[at].slice;
    }
    return path;
}

}  // namespace vocabpipe
