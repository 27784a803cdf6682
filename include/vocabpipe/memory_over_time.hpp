// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/timeline.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// The rows of a memory report. Stage inputs count as activations: they are kept for the backward.
enum class MemoryUse : uint8_t {
    weights,
    gradients,
    optimizer,
    activations,    ///< Purpose::boundary and Purpose::activation
    vocabulary,     ///< Purpose::vocabulary
    communication,  ///< Purpose::partial_sums, report and tied
    workspace,      ///< Purpose::workspace
};
inline constexpr size_t kMemoryUses = 7;
[[nodiscard]] std::string_view to_string(MemoryUse use);
[[nodiscard]] MemoryUse memory_use(Purpose purpose);

/// Bytes that one rank holds before, during and after a step.
struct PersistentBytes {
    uint64_t weights = 0;    ///< bytes
    uint64_t gradients = 0;  ///< bytes
    uint64_t optimizer = 0;  ///< bytes of moments and masters
    /// Bytes.
    [[nodiscard]] int64_t total() const {
        return static_cast<int64_t>(weights + gradients + optimizer);
    }
    /// Member by member.
    friend bool operator==(const PersistentBytes&, const PersistentBytes&) = default;
};

using BytesByUse = std::array<uint64_t, kMemoryUses>;

/// From `at_ns` on (time of the timeline) so much more, or less, is alive for this use.
struct MemoryChange {
    int64_t at_ns = 0;                       ///< when
    int64_t bytes = 0;                       ///< that come alive; negative: die
    MemoryUse use = MemoryUse::activations;  ///< what they are for
};

/// Memory of one rank over a step: the persistent bytes, and every buffer of the arena from the
/// begin of its first user to the end of its last.
struct RankMemory {
    PersistentBytes persistent;         ///< of weights, gradients and optimizer
    std::vector<MemoryChange> changes;  ///< ascending in time, what is freed before what is taken
    uint64_t peak_bytes = 0;            ///< largest sum of everything alive, persistent included
    int64_t peak_at_ns = 0;             ///< when it is reached first
    BytesByUse at_peak{};               ///< adds up to peak_bytes
    BytesByUse largest{};               ///< of each use by itself, at whatever time
};

/// `persistent`: by rank, or empty for none. Simulated and executed timelines alike; actions
/// without a span are taken not to have run. Throws UsageError if persistent has another size.
[[nodiscard]] std::vector<RankMemory> memory_over_time(
    const Timeline& timeline, const std::vector<Program>& programs,
    std::span<const PersistentBytes> persistent = {});

}  // namespace vocabpipe
