// SPDX-License-Identifier: Apache-2.0
// The rule of every family; registry.cpp lists them by name.
#pragma once

#include "vocabpipe/make_schedule.hpp"

namespace vocabpipe {

/// One forward, one backward: at most p-r microbatches in flight on rank r, plus one per barrier;
/// with interlaced vocabulary layers floor(3p/2)-r. A `warm_up_depth` above 1 gives eager_1f1b.
[[nodiscard]] Schedule one_f_one_b(const ScheduleOptions& options);

/// 1F1B with warm-up depth D (`warm_up_depth`, default 2): 1+D(p-1-r) microbatches in flight on
/// rank r. Hides boundary latency up to (D-1)(F+B)/2 that plain 1F1B pays on every round trip.
[[nodiscard]] Schedule eager_1f1b(const ScheduleOptions& options);

/// 1F1B whose backwards and forwards are overlapped pairs (`overlap_pairs`), for sharded vocabulary
/// layers: what eager_1f1b() returns then. 2+D(p-1-r) microbatches in flight on rank r, plus one
/// per barrier.
[[nodiscard]] Schedule combined_1f1b(const ScheduleOptions& options);

/// All forwards, then all backwards: all m microbatches in flight.
[[nodiscard]] Schedule gpipe(const ScheduleOptions& options);

/// Interleaved 1F1B: v stages per rank in a loop, microbatches in groups of N (`group_size`,
/// default p). (v-1)N+2(p-1-r)+1 chunks in flight on rank r, 1/v of the bubble of 1F1B.
[[nodiscard]] Schedule interleaved(const ScheduleOptions& options);

/// Group-interleaved 1F1B: interleaved with split backwards, groups of g = `group_size` <= p
/// (default p) microbatches. p+(v-1)g-r chunks in flight on rank r for g >= p/2. Throws UsageError
/// for g > p.
[[nodiscard]] Schedule group_interleaved(const ScheduleOptions& options);

/// Looped breadth-first: every chunk runs all its microbatches before the next one. mv chunks in
/// flight; each stage is visited once per direction, so sharded weights are gathered twice per
/// step.
[[nodiscard]] Schedule looped_bfs(const ScheduleOptions& options);

/// ZB(k): at most k = `memory_limit` microbatches in flight on every rank, at least p (default, the
/// peak of 1F1B); the warm-up depends on the costs. At F = I = W it has no bubble for k >= 2p-1 and
/// never holds more than 2p-1. Throws UsageError for k < p.
[[nodiscard]] Schedule zb(const ScheduleOptions& options);
/// ZB-H1: ZB(p).
[[nodiscard]] Schedule zb_h1(const ScheduleOptions& options);
/// ZB-H2: ZB(2p).
[[nodiscard]] Schedule zb_h2(const ScheduleOptions& options);

/// Interleaved zero bubble (ZB1P): interleaved 1F1B with I instead of B, and W in idle times. vp
/// chunks in flight on every rank, a third of the bubble of interleaved 1F1B at F = I = W.
[[nodiscard]] Schedule interleaved_zb(const ScheduleOptions& options);

/// ZB-V: two stages per rank in a V, no bubble at F = I = W, the memory of 1F1B (2p chunks) on
/// every rank.
[[nodiscard]] Schedule zb_v(const ScheduleOptions& options);

// Two fixed patterns on the V placement (Qi et al. 2024, arXiv 2405.15362).
// Rule: one microbatch every six slots, W in free slots; then passes of the warm-up and of the
// cool-down move to earlier slots as far as inputs and the peak allow. The slots assume F = I = W:
// the lists do not depend on the costs. Any p and m; the bubbles below hold for unit costs and m >=
// 2p.

/// Equal memory on every rank, within one chunk: 2 floor(p/2) + 2 chunks, about half of 1F1B's 2p.
/// Bubble: 6 floor((p+1)/2) - 7 slots; 1 at p = 2.
[[nodiscard]] Schedule v_half(const ScheduleOptions& options);

/// Equal memory on every rank, within one chunk: 2 ceil((p-1)/3) + 2 chunks, about a third of 2p.
/// Bubble: 4p - 5 slots; 4p - 7 where 3 divides p. Latency costs idle time for every microbatch.
[[nodiscard]] Schedule v_min(const ScheduleOptions& options);

/// 1F1B with an unsplit backward on the V placement ("v1f1b" in sail-sg's zero-bubble repository).
/// Rule: one microbatch every six slots, whose forwards go down and up the ranks without a pause
/// and whose backwards of two slots each follow with a pause after every third; then passes move to
/// earlier slots as far as inputs and the peak allow.
/// Bubble at F = 1, B = 2, m >= 2p: 5p - 5 slots where p mod 3 = 1, otherwise 5p - 9 to 5p - 6.
/// Memory: 2 floor(2p/3) + 2 chunks on every rank, where 1F1B needs 2p on rank 0.
/// Independent of the costs. Any p and m.
[[nodiscard]] Schedule v_one_f_one_b(const ScheduleOptions& options);

/// The best of all repeated patterns on the V placement that keep at most memory_limit chunks alive
/// on any rank, for the given costs, then refined for these costs.
///
/// Source: the V-shaped building blocks of arXiv 2405.15362; the search over them is "v_auto" in
/// sail-sg's zero-bubble repository.
/// Rule: rank 0 runs F and I of its two chunks at four places of an interval of six slots; from
/// rank to rank the places move by a constant step, which may change once; W takes the free places.
/// Warm-up and cool-down are laid out anew, holes filled, and the list timed with the costs; the
/// score to minimise is makespan + largest span. With more than 32 ranks the change of the step is
/// tried at 30 of them only. If passes differ in time or messages take time, the best four lists
/// are then refined by moving single passes. Bubble: largest span - 6m = 3p-1-3k + max(3p, p-1 +
/// 2(1 + floor((k+1)/2))) slots at limit k for F = I = W = 1, m >= 2p (tested for p = 2..8);
/// makespan at most p-1 more. Memory: k chunks, from 2 ceil((p-1)/3) + 2 (fewer for m < 2p) to 2p,
/// which is the default; more does not help. Throws UsageError naming the least possible k for
/// smaller limits. Any p and m. Time: about 0.1 s at p = 8, 0.3 s at p = 16, 3 s at p = 32 on one
/// core, for any m. The same options give the same list.
[[nodiscard]] Schedule v_search(const ScheduleOptions& options);

/// DualPipeV: two stages per rank in a V, forwards and backwards of different microbatches in
/// overlapped pairs (Pass::with_next). 2p+1 chunks in flight on every rank.
[[nodiscard]] Schedule dualpipe_v(const ScheduleOptions& options);

}  // namespace vocabpipe
