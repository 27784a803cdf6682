// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/ops.hpp"
#include "src/schedule/stream_edges.hpp"
#include "src/schedule/streaming_pass.hpp"
#include "vocabpipe/timeline.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe {

/// A pass runs at cores / sharing of its speed.
struct CoreShare {
    int64_t cores = 1;
    int64_t sharing = 1;
};

/// A pass that runs, which communication slows down. Work is counted in thousandths of a nanosecond
/// at full speed times (1000 + slowdown) / 1000, so that both speeds are whole numbers.
struct RunningPass {
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr int64_t kFull = 1000;  ///< speed of a pass during communication

    uint32_t action = kNone;
    int64_t work = 0;
    int64_t slowdown = 0;      ///< permille
    int64_t since_ns = 0;      ///< time at which `work` was updated
    int64_t computes = kFull;  ///< permille of its time; else it waits for its team
    StreamingPass stream;      ///< if rows stream into or out of it

    /// Whether it runs and does not wait for rows.
    [[nodiscard]] bool is_working() const { return action != kNone && !stream.waits(); }
    /// Time of the remaining work from since_ns on.
    [[nodiscard]] int64_t ns_left(int64_t speed, CoreShare share) const {
        // work * sharing / per_ns, rounded up without leaving 64 bits.
        const int64_t per_ns = speed * share.cores;
        const int64_t left = std::max<int64_t>(0, work);
        return left / per_ns * share.sharing +
               (left % per_ns * share.sharing + per_ns - 1) / per_ns;
    }
    /// Subtracts the work done until `now` at that speed.
    void work_until(int64_t now, int64_t speed, CoreShare share) {
        const int64_t alone = (now - since_ns) * speed;
        work -= alone / share.sharing * share.cores +
                alone % share.sharing * share.cores / share.sharing;
        since_ns = now;
    }
};

/// Thousandths of its time in which a pass of `ns` computes, if it waits for its team for
/// `exchange_ns`.
[[nodiscard]] inline int64_t computing_permille(int64_t ns, int64_t exchange_ns) {
    return ns > 0 ? RunningPass::kFull - RunningPass::kFull * exchange_ns / ns : RunningPass::kFull;
}

/// The cores of a rank, divided between the two passes of a pair while both work: they run at full
/// speed together if they compute for no more than one does all the time.
[[nodiscard]] inline CoreShare pair_share(const RunningPass& first, const RunningPass& second,
                                          CoreShare of_rank) {
    const int64_t both = first.computes + second.computes;
    if (both <= RunningPass::kFull) return of_rank;
    return {.cores = of_rank.cores * RunningPass::kFull, .sharing = of_rank.sharing * both};
}

/// One rank's program while it is simulated: what its actions still wait for, and the passes that
/// run.
struct SimulatedRank {
    static constexpr uint32_t kNone = RunningPass::kNone;
    static constexpr int64_t kFull = RunningPass::kFull;

    StreamEdges edges;
    std::vector<uint32_t> missing;  ///< [action] edges and lane predecessors not yet satisfied
    std::vector<uint32_t> next_in_lane;
    std::vector<uint32_t> next_in_order;  ///< [action] next communication in the program
    Span* spans = nullptr;                ///< [action]

    std::vector<uint32_t> beside;  ///< [action] of a first pass its pair's second; empty: no pairs
    std::array<RunningPass, 2> running;  ///< on the compute lane; [1]: the second pass of a pair
    int communicating = 0;

    /// Starts the program, whose spans begin at `first`.
    void begin(const Program& program, uint16_t rank, CommunicationOrder order, Span* first) {
        const size_t count = program.actions.size();
        // Not with serial: one communication at a time, so one that waits for rows would block all
        // others.
        edges = StreamEdges(program, order != CommunicationOrder::serial);
        missing = edges.ends.missing;
        next_in_lane.assign(count, kNone);
        next_in_order.assign(count, kNone);
        spans = first;
        std::array<uint32_t, kLanes> last;
        last.fill(kNone);
        uint32_t launched = kNone;
        const bool launches =
            order == CommunicationOrder::launches || order == CommunicationOrder::serial;
        for (uint32_t i = 0; i < count; ++i) {
            const Action& action = program.actions[i];
            spans[i].action = i;
            spans[i].rank = rank;
            spans[i].lane = action.lane;
            spans[i].ready_ns = 0;
            if (action.pair_member == 2) {
                follow_first(last[static_cast<size_t>(action.lane)], i);
                continue;
            }
            follow(last[static_cast<size_t>(action.lane)], i, next_in_lane);
            if (action.lane == Lane::compute) end_pair(i);
            if (launches && is_communication(action.what)) follow(launched, i, next_in_order);
        }
    }
    [[nodiscard]] RunningPass& running_of(uint32_t action) {
        return running[running[1].action == action ? 1 : 0];
    }
    [[nodiscard]] const RunningPass& running_of(uint32_t action) const {
        return running[running[1].action == action ? 1 : 0];
    }
    [[nodiscard]] int64_t speed(const RunningPass& pass) const {
        return communicating > 0 ? kFull : kFull + pass.slowdown;
    }
    /// The cores of the rank, divided between its passes.
    [[nodiscard]] CoreShare own_share(CoreShare of_rank) const {
        if (!running[0].is_working() || !running[1].is_working()) return of_rank;
        return pair_share(running[0], running[1], of_rank);
    }

private:
    /// Makes `second` the pass that runs beside `first`: it may start when the first one has.
    void follow_first(uint32_t first, uint32_t second) {
        beside.resize(missing.size(), kNone);
        beside[first] = second;
        ++missing[second];
        open_second_ = second;
    }
    /// `action`, which follows the first pass of a pair, follows the second as well.
    void end_pair(uint32_t action) {
        if (open_second_ == kNone) return;
        next_in_lane[open_second_] = action;
        ++missing[action];
        open_second_ = kNone;
    }
    /// Makes `action` the successor of `previous`, if any, and the new `previous`.
    void follow(uint32_t& previous, uint32_t action, std::vector<uint32_t>& next) {
        if (previous != kNone) {
            next[previous] = action;
            ++missing[action];
        }
        previous = action;
    }

    uint32_t open_second_ = kNone;  ///< second pass of a pair that no pass follows yet
};

}  // namespace vocabpipe
