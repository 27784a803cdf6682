// SPDX-License-Identifier: Apache-2.0
#include "src/imported/clock_offsets.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace vocabpipe::imported {

namespace {

constexpr int64_t kNone = INT64_MAX;

int64_t sent_ns(const MeasuredPass& made) {
    return made.sent_ns == MeasuredPass::kUnknown ? made.end_ns : made.sent_ns;
}

int64_t arrived_ns(const MeasuredPass& used) {
    return used.arrived_ns == MeasuredPass::kUnknown ? used.end_ns : used.arrived_ns;
}

void move(MeasuredPass& one, int64_t by_ns) {
    for (int64_t* const ns :
         {&one.begin_ns, &one.end_ns, &one.posted_ns, &one.arrived_ns, &one.sent_ns}) {
        if (*ns != MeasuredPass::kUnknown) *ns += by_ns;
    }
}

/// [sender, receiver] The smallest difference of a message's two moments, each on its own clock.
using Delays = std::map<std::pair<int, int>, int64_t>;

Delays smallest_delays(const MeasuredRun& run) {
    Delays delays;
    for (const MeasuredStep& step : run.steps) {
        const StepIndex index(step, run.stages);
        for (int rank = 0; rank < run.ranks(); ++rank) {
            for (const MeasuredPass& used : step[static_cast<size_t>(rank)]) {
                const auto from = index.input_of(used.pass);
                if (!from || from->rank == rank) continue;
                const MeasuredPass& made = step[static_cast<size_t>(from->rank)][from->position];
                const int64_t delay = arrived_ns(used) - sent_ns(made);
                const auto [found, fresh] = delays.try_emplace({from->rank, rank}, delay);
                if (!fresh) found->second = std::min(found->second, delay);
            }
        }
    }
    return delays;
}

/// What to add to the times of `to`, to have them on the clock of `from`.
ClockOffset offset_between(const MeasuredRun& run, const Delays& delays, int from, int to) {
    const auto forth = delays.find({from, to});
    const auto back = delays.find({to, from});
    // With x to add to `to`: forth + x >= 0 and back - x >= 0.
    const int64_t least = forth == delays.end() ? -kNone : -forth->second;
    const int64_t most = back == delays.end() ? kNone : back->second;
    const std::string& host = run.hosts[static_cast<size_t>(from)];
    const bool one_clock = !host.empty() && host == run.hosts[static_cast<size_t>(to)];
    if (one_clock && least <= 0 && most >= 0) return {.add_ns = 0, .uncertainty_ns = 0};
    if (least == -kNone || most == kNone) {
        const bool allows_none = least <= 0 && most >= 0;
        return {.add_ns = allows_none ? 0 : least == -kNone ? most : least, .uncertainty_ns = -1};
    }
    return {.add_ns = least + (most - least) / 2, .uncertainty_ns = std::abs(most - least) / 2};
}

}  // namespace

std::vector<ClockOffset> estimate_clocks(const MeasuredRun& run) {
    const Delays delays = smallest_delays(run);
    const auto ranks = static_cast<size_t>(run.ranks());
    std::vector<ClockOffset> offsets(ranks);
    std::vector<int64_t> distance(ranks, kNone);  // uncertainty, one-sided ones last
    std::vector<bool> done(ranks, false);
    distance[0] = 0;
    // One-sided bounds cost more than all others together may.
    constexpr int64_t kOneSided = int64_t{1} << 50;
    for (;;) {  // Dijkstra's shortest paths
        size_t near = ranks;
        for (size_t rank = 0; rank < ranks; ++rank) {
            if (done[rank] || distance[rank] == kNone) continue;
            if (near == ranks || distance[rank] < distance[near]) near = rank;
        }
        if (near == ranks) return offsets;
        done[near] = true;
        for (size_t rank = 0; rank < ranks; ++rank) {
            const auto from = static_cast<int>(near), to = static_cast<int>(rank);
            if (done[rank] || (!delays.contains({from, to}) && !delays.contains({to, from}))) {
                continue;
            }
            const ClockOffset step = offset_between(run, delays, from, to);
            const bool bounded = step.uncertainty_ns >= 0;
            const int64_t length =
                std::min(distance[near], kNone / 4) + (bounded ? step.uncertainty_ns : kOneSided);
            if (length >= distance[rank]) continue;
            distance[rank] = length;
            const ClockOffset& before = offsets[near];
            offsets[rank].add_ns = before.add_ns + step.add_ns;
            offsets[rank].uncertainty_ns = bounded && before.uncertainty_ns >= 0
                                               ? before.uncertainty_ns + step.uncertainty_ns
                                               : -1;
        }
    }
}

void correct_clocks(MeasuredRun& run) {
    const std::vector<ClockOffset> offsets = estimate_clocks(run);
    int64_t origin = kNone;
    for (const MeasuredStep& step : run.steps) {
        for (size_t rank = 0; rank < step.size(); ++rank) {
            origin = std::min(origin, step[rank].front().begin_ns + offsets[rank].add_ns);
        }
    }
    for (MeasuredStep& step : run.steps) {
        for (size_t rank = 0; rank < step.size(); ++rank) {
            for (MeasuredPass& one : step[rank]) move(one, offsets[rank].add_ns - origin);
        }
        const StepIndex index(step, run.stages);
        for (size_t rank = 0; rank < step.size(); ++rank) {
            for (MeasuredPass& used : step[rank]) {
                const auto from = index.input_of(used.pass);
                if (!from || from->rank == static_cast<int>(rank)) continue;
                const MeasuredPass& made = step[static_cast<size_t>(from->rank)][from->position];
                used.begin_ns = std::min(std::max(used.begin_ns, sent_ns(made)),
                                         std::max(used.begin_ns, used.end_ns));
            }
        }
    }
}

}  // namespace vocabpipe::imported
