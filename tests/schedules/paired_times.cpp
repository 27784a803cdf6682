// SPDX-License-Identifier: Apache-2.0
#include "tests/schedules/paired_times.hpp"

#include "src/schedule/pass_inputs.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>

namespace vocabpipe::testing {

PassTimes time_pairs(const Schedule& schedule, const PassCosts& costs, bool longest) {
    const PassInputs inputs(schedule, costs);
    std::map<size_t, std::pair<int, int64_t>> events;  // producers that have ended, last end
    const auto arrival = [&](int rank, const Pass& pass) -> std::optional<int64_t> {
        const PassInputs::Need need = inputs.need(rank, pass);
        if (need.event == PassInputs::kNothing) return 0;
        if (inputs.producers(need.event) == 0) return need.latency;  // no vocabulary passes
        const auto found = events.find(need.event);
        if (found == events.end() || found->second.first < inputs.producers(need.event)) return {};
        return found->second.second + need.latency;
    };
    PassTimes times;
    times.begin.resize(static_cast<size_t>(schedule.ranks));
    times.end = times.begin;
    times.busy.assign(times.begin.size(), 0);
    for (bool moved = true; moved;) {
        moved = false;
        for (int rank = 0; rank < schedule.ranks; ++rank) {
            const auto r = static_cast<size_t>(rank);
            const size_t at = times.begin[r].size();
            if (at == schedule.passes[r].size()) continue;
            const size_t members = schedule.passes[r][at].with_next ? 2 : 1;
            int64_t begin = at == 0 ? 0 : times.end[r].back();
            int64_t sum = 0, most = 0;
            bool ready = true;
            for (size_t i = at; i < at + members; ++i) {
                const Pass& pass = schedule.passes[r].at(i);
                const std::optional<int64_t> input = arrival(rank, pass);
                ready = ready && input;
                begin = std::max(begin, input.value_or(0));
                sum += costs(rank, pass);
                most = std::max(most, costs(rank, pass));
            }
            if (!ready) continue;
            const int64_t length = longest ? most : sum;
            for (size_t i = at; i < at + members; ++i) {
                times.begin[r].push_back(begin);
                times.end[r].push_back(begin + length);
                const size_t done = inputs.produced(schedule.passes[r][i]);
                if (done == PassInputs::kNothing) continue;
                auto& [producers, end] = events[done];
                ++producers;
                end = std::max(end, begin + length);
            }
            times.busy[r] += length;
            moved = true;
        }
    }
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (size_t r = 0; r < times.begin.size(); ++r) {
        if (times.begin[r].size() != schedule.passes[r].size()) {
            throw std::logic_error("the lists deadlock");
        }
        times.span.push_back(times.end[r].back() - times.begin[r].front());
        times.largest_span = std::max(times.largest_span, times.span.back());
        first = std::min(first, times.begin[r].front());
        last = std::max(last, times.end[r].back());
    }
    times.makespan = last - first;
    return times;
}

}  // namespace vocabpipe::testing
