// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/explain/time_use.hpp"
#include "src/schedule/place_text.hpp"
#include "src/schedule/slice_causes.hpp"
#include "src/support/joined.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/explain.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

/// With more ranks than this only the busiest and the least busy are shown.
constexpr size_t kMostShown = 8;
/// Clocks of ranks differ slightly, so a chain may not end by itself.
constexpr int kMostLinks = 16;

std::string percent(int64_t part, int64_t whole) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.1f %%",
                  whole > 0 ? 100 * static_cast<double>(part) / static_cast<double>(whole) : 0.0);
    return text.data();
}

std::string list(const std::vector<RankTimeUse::Share>& shares, int64_t makespan) {
    return joined(shares, ", ", [makespan](const RankTimeUse::Share& share) {
        return share.name + " " + percent(share.ns, makespan);
    });
}

/// Ranks to show: all, or those that are busy longest and shortest.
std::vector<size_t> chosen(const std::vector<RankTimeUse>& ranks) {
    std::vector<size_t> order(ranks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (ranks.size() <= kMostShown) return order;
    std::ranges::stable_sort(order, std::greater(),
                             [&](size_t rank) { return ranks[rank].busy_ns; });
    order.erase(order.begin() + kMostShown / 2, order.end() - kMostShown / 2);
    std::ranges::sort(order);
    return order;
}

}  // namespace

std::string shared_cores_text(double pass_time_over_cpu) {
    constexpr double kSharedCores = 1.2;
    if (pass_time_over_cpu <= kSharedCores) return "";
    std::array<char, 32> factor;
    std::snprintf(factor.data(), factor.size(), "%.2f", pass_time_over_cpu);
    return "passes took " + std::string(factor.data()) +
           " times their CPU time: threads shared cores with each other or with other programs, or "
           "waited inside passes for rows of other ranks";
}

std::string to_text(const RecordedRun& run, const TimeText& time) {
    const TimelineSummary summary = summarize(run);
    const std::vector<RankTimeUse> ranks = time_use(run);
    const int64_t makespan = summary.makespan_ns;
    int64_t busy = 0, cpu = 0;
    for (const RankTimeUse& rank : ranks) {
        busy += rank.busy_ns;
        cpu += rank.cpu_ns;
    }
    std::string text = time(makespan) + " on " + std::to_string(run.ranks) +
                       (run.ranks == 1 ? " rank" : " ranks") + ", which compute " +
                       percent(busy, makespan * run.ranks) + " of it\n";
    const std::string shared =
        cpu > 0 ? shared_cores_text(static_cast<double>(busy) / static_cast<double>(cpu)) : "";
    if (!shared.empty()) text += shared + "\n";
    text += "\n";
    const std::vector<size_t> shown = chosen(ranks);
    for (const size_t rank : shown) {
        const RankTimeUse& use = ranks[rank];
        text += rank_text(run.mesh, static_cast<int>(rank)) + ": " + list(use.passes, makespan);
        if (!use.waits.empty()) text += "; idle: " + list(use.waits, makespan);
        text += "\n";
    }
    if (shown.size() < ranks.size()) {
        text += "and " + std::to_string(ranks.size() - shown.size()) +
                " other ranks, which compute no more and no less\n";
    }
    return text + "\ncritical path, which everything else waited for: " +
           list(critical_path_use(run), makespan) + "\n";
}

std::string to_text(const RecordedRun& run, int rank, int64_t at_ns, const TimeText& time) {
    const int64_t makespan = summarize(run).makespan_ns;
    if (rank < 0 || rank >= run.ranks) {
        throw UsageError("--rank " + std::to_string(rank) + ": the trace has the ranks 0 to " +
                         std::to_string(run.ranks - 1));
    }
    if (at_ns < 0 || at_ns > makespan) {
        throw UsageError("--at " + time(at_ns) + ": must be within the run, from 0 to " +
                         time(makespan));
    }
    const auto name = [&](const RecordedRun::Slice& slice) {
        return run.names[slice.name] +
               (slice.number == RecordedRun::kNone ? "" : std::to_string(slice.number));
    };
    const auto span = [&](int64_t begin, int64_t end) {
        return "from " + time(begin) + " to " + time(end) + "\n";
    };
    const std::string here = rank_text(run.mesh, rank);
    const std::vector<SliceCause> causes = slice_causes(run);
    int64_t since = 0;
    for (uint32_t i = 0; i < run.slices.size(); ++i) {
        const RecordedRun::Slice& slice = run.slices[i];
        if (slice.rank != rank || slice.lane != Lane::compute) continue;
        if (slice.end_ns <= at_ns) {
            since = slice.end_ns;
            continue;
        }
        if (slice.begin_ns <= at_ns) {
            return here + " runs " + name(slice) + ", " + span(slice.begin_ns, slice.end_ns);
        }
        std::string text =
            here + " is idle before " + name(slice) + ", " + span(since, slice.begin_ns);
        uint32_t at = causes[i].slice;
        for (int link = 0; link < kMostLinks && at != RecordedRun::kNone; ++link) {
            const uint32_t last = causes[at].member;
            const RecordedRun::Slice& cause = run.slices[last];
            text += "  after " + name(cause) + " of " + rank_text(run.mesh, cause.rank) + ", " +
                    span(cause.begin_ns, run.slices[at].end_ns);
            if (cause.begin_ns <= since) break;
            at = causes[last].slice;
        }
        return text;
    }
    return here + " has finished all its passes since " + time(since) + "\n";
}

}  // namespace vocabpipe
