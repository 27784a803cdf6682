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
    weights,    ///< PersistentBytes::weights and Purpose::stage_weights
    gradients,  ///< PersistentBytes::gradients and Purpose::stage_gradients
    optimizer,
    activations,    ///< Purpose::boundary and Purpose::activation
    vocabulary,     ///< Purpose::vocabulary
    communication,  ///< Purpose::partial_sums, report, tied and replicas
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

/// A change of the bytes alive for one use, at one time of the timeline.
struct MemoryChange {
    int64_t at_ns = 0;                       ///< when
    int64_t bytes = 0;                       ///< bytes that come alive; negative: that die
    MemoryUse use = MemoryUse::activations;  ///< what the bytes are for
};

/// Memory of one rank over a step: the persistent bytes, and every buffer of the arena from the
/// begin of its first user to the end of its last.
struct RankMemory {
    PersistentBytes persistent;         ///< of weights, gradients and optimizer
    std::vector<MemoryChange> changes;  ///< ascending in time; at equal times, frees come first
    uint64_t peak_bytes = 0;            ///< largest sum of everything alive, persistent included
    int64_t peak_at_ns = 0;             ///< when it is reached first
    BytesByUse at_peak{};               ///< adds up to peak_bytes
    BytesByUse largest{};               ///< of each use by itself, at any time
};

/// Memory of every rank of a simulated or executed timeline. `persistent`: by rank, or empty for
/// none. Actions without a span count as not run. Throws UsageError if `persistent` has another
/// size.
[[nodiscard]] std::vector<RankMemory> memory_over_time(
    const Timeline& timeline, const std::vector<Program>& programs,
    std::span<const PersistentBytes> persistent = {});

}  // namespace vocabpipe
