// SPDX-License-Identifier: Apache-2.0
#include "schedules/families.hpp"

#include "vocabpipe/error.hpp"

#include "schedules/placement.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

using enum Op;

/// The least group for which the forwards and the input gradients of all ranks fit into the time
/// that a rank takes for the group: p/2 for equal stages.
int64_t minimum_group(const ScheduleOptions& options) {
    const int p = options.ranks;
    int64_t longest = 0;  // F + I + W of a stage
    int64_t needed = 0;   // F, or I, of one chunk on all ranks
    for (int chunk = 0; chunk < options.rule.chunks; ++chunk) {
        int64_t forward = 0;
        int64_t backward = 0;
        for (int rank = 0; rank < p; ++rank) {
            const auto stage = static_cast<uint16_t>(chunk * p + rank);
            const auto cost = [&](Op op) { return options.costs(rank, {op, stage, 0}); };
            longest = std::max(longest, cost(F) + cost(I) + cost(W));
            forward += cost(F);
            backward += cost(I);
        }
        needed = std::max({needed, forward, backward});
    }
    const int64_t raised = longest == 0 ? 0 : (needed + longest - 1) / longest;
    return std::max<int64_t>((p + 1) / 2, raised);
}

// Building blocks of PipeOffload (Wan et al. 2025), all activations kept. Every pass has a slot in
// a block that repeats every 3gv slots; the list is the order of the slots.
//
//   p=2, v=2, g=1, m=2, rank 0 (stages 0 and 2):  0F0 2F0 2I0 2W0 0F1 0I0 0W0 2F1 2I1 2W1 0I1 0W1
//
// For p/2 <= g <= p and m mod g = 0: step 3mv+2(p-1)+(v-1)(p-g) at F = I = W = 1 per chunk, memory
// p+(v-1)g-r chunks: less of both than interleaved 1F1B for v = 2 and g > 1. W follows its I
// directly.
std::vector<Pass> list_of(const ScheduleOptions& options, int64_t g, int64_t blocks, int rank) {
    const int64_t p = options.ranks;
    const int64_t v = options.rule.chunks;
    const int64_t turn =
        v / std::gcd(v, blocks);  // chunks until slots of a block would be used again
    const auto hop = [&](int64_t chunk) { return 3 * blocks * g * chunk + 3 * g * (chunk / turn); };
    const int64_t first_backward = hop(v - 1) + rank + 3 * (p - 1 - rank) + 1;
    std::vector<std::pair<int64_t, Pass>> timed;
    for (int64_t j = 0; j < options.microbatches; ++j) {
        const int64_t group = 3 * g * v * (j / g);
        const int64_t member = 3 * (j % g);
        for (int64_t chunk = 0; chunk < v; ++chunk) {
            const auto microbatch = static_cast<uint32_t>(j);
            const auto down = static_cast<uint16_t>(chunk * p + rank);
            const auto up = static_cast<uint16_t>((v - 1 - chunk) * p + rank);
            const int64_t backward = group + first_backward + hop(chunk) + member;
            timed.push_back({group + hop(chunk) + member + rank, {F, down, microbatch}});
            timed.push_back({backward, {I, up, microbatch}});
            timed.push_back({backward + 1, {W, up, microbatch}});
        }
    }
    std::sort(timed.begin(), timed.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Pass> list;
    list.reserve(timed.size());
    for (const auto& [slot, pass] : timed) list.push_back(pass);
    return list;
}

}  // namespace

Schedule group_interleaved(const ScheduleOptions& options) {
    const int g = options.rule.group_size == 0 ? options.ranks : options.rule.group_size;
    if (g > options.ranks) {
        throw UsageError("RuleOptions::group_size " + std::to_string(g) + ": must be at most " +
                         std::to_string(options.ranks) +
                         " for group-interleaved, one microbatch per rank");
    }
    const int64_t blocks = (minimum_group(options) + g - 1) / g;
    return transformer_schedule(options, Placement::loop, options.rule.chunks,
                                [&](int rank) { return list_of(options, g, blocks, rank); });
}

}  // namespace vocabpipe
