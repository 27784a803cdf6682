// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/explain/time_use.hpp"

#include "src/schedule/slice_causes.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

namespace vocabpipe {

namespace {

using Slice = RecordedRun::Slice;
using Sums = std::map<std::string, int64_t, std::less<>>;

/// "2F" and "F of microbatch 3" are F.
std::string kind_of(std::string_view name) {
    const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    while (!name.empty() && digit(name.front())) name.remove_prefix(1);
    return std::string(name.substr(0, name.find(' ')));
}

/// Name of a wait, by the lane of the action that was waited for last.
const char* wait_of(const RecordedRun& run, uint32_t cause) {
    if (cause == RecordedRun::kNone) return "the begin";
    switch (run.slices[cause].lane) {
        case Lane::forward:
            return "forward messages";
        case Lane::backward:
            return "backward messages";
        case Lane::collective:
            return "collectives";
        case Lane::local:
            return "sums and factors";
        case Lane::compute:
            return "overhead";
    }
    return "";
}

std::vector<RankTimeUse::Share> largest_first(const Sums& sums) {
    std::vector<RankTimeUse::Share> shares;
    for (const auto& [name, ns] : sums) {
        if (ns > 0) shares.push_back({name, ns});
    }
    std::ranges::stable_sort(shares, std::greater(), &RankTimeUse::Share::ns);
    return shares;
}

}  // namespace

std::vector<RankTimeUse> time_use(const RecordedRun& run) {
    const int64_t makespan = summarize(run).makespan_ns;
    const std::vector<SliceCause> causes = slice_causes(run);
    std::vector<RankTimeUse> ranks(static_cast<size_t>(run.ranks));
    std::vector<Sums> passes(ranks.size()), waits(ranks.size());
    std::vector<int64_t> until(ranks.size(), 0);
    for (uint32_t i = 0; i < run.slices.size(); ++i) {
        const Slice& slice = run.slices[i];
        if (slice.lane != Lane::compute) continue;
        const size_t rank = slice.rank;
        RankTimeUse& use = ranks[rank];
        // Recorded passes may overlap; each moment counts once.
        const int64_t begin = std::max(slice.begin_ns, until[rank]);
        const int64_t end = std::max(slice.end_ns, begin);
        waits[rank][wait_of(run, causes[i].slice)] += begin - until[rank];
        passes[rank][kind_of(run.names[slice.name])] += end - begin;
        use.busy_ns += end - begin;
        use.cpu_ns += slice.cpu_ns;
        until[rank] = end;
    }
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
        waits[rank]["the others' end"] += std::max<int64_t>(makespan - until[rank], 0);
        ranks[rank].passes = largest_first(passes[rank]);
        ranks[rank].waits = largest_first(waits[rank]);
    }
    return ranks;
}

std::vector<RankTimeUse::Share> critical_path_use(const RecordedRun& run) {
    Sums sums;
    int64_t left = summarize(run).makespan_ns;
    for (const PathPiece& piece : critical_path(run, slice_causes(run))) {
        const Slice& slice = run.slices[piece.slice];
        const int64_t ns = piece.end_ns - piece.begin_ns;
        sums[slice.lane == Lane::compute ? kind_of(run.names[slice.name])
                                         : std::string(to_string(slice.lane)) + " lane"] += ns;
        left -= ns;
    }
    sums["between them"] += left;
    return largest_first(sums);
}

}  // namespace vocabpipe
