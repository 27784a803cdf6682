// SPDX-License-Identifier: Apache-2.0
// Second half of lowering, part two: offsets in the arena.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace vocabpipe::lowering {

/// Lifetime of a buffer of one rank in the list schedule: from the start of its first user to the
/// end of all users.
struct Lifetime {
    uint64_t bytes = 0;
    int64_t born_ns = 0;
    int64_t dies_ns = 0;
    uint32_t born_order = 0;  ///< global order of the first user
    uint32_t last_order = 0;  ///< largest global order of any user
    uint64_t offset = 0;      ///< result
};

struct MemoryPlan {
    uint64_t arena_bytes = 0;
    uint64_t live_peak_bytes = 0;
    uint32_t peak_at = 0;  ///< index of the lifetime whose birth makes the live peak
    /// (earlier, later): the later buffer lies where the earlier one was; its first user must wait
    /// for all users of the earlier one.
    std::vector<std::pair<uint32_t, uint32_t>> reuses;
};

inline constexpr uint64_t kAlignment = 256;  ///< bytes; cache lines, vectors and pages stay apart

/// Best fit in order of birth. Memory is reused only if every user of the old buffer comes before
/// the new buffer in the global order and in time, so that reuse never adds waiting to the list
/// schedule. Fills in `offset`.
[[nodiscard]] MemoryPlan plan_memory(std::vector<Lifetime>& lifetimes);

}  // namespace vocabpipe::lowering
