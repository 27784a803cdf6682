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

/// One rank's program while it is simulated: what its actions still wait for, and the pass that
/// runs, which communication slows down.
struct SimulatedRank {
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr int64_t kFull = 1000;  ///< speed of a pass during communication

    StreamEdges edges;
    std::vector<uint32_t> missing;  ///< [action] edges and lane predecessors not yet satisfied
    std::vector<uint32_t> next_in_lane;
    std::vector<uint32_t> next_in_order;  ///< [action] next communication in the program
    Span* spans = nullptr;                ///< [action]

    // The pass on the compute lane. Work is counted in thousandths of a nanosecond at full speed
    // times (1000 + slowdown) / 1000, so that both speeds are whole numbers.
    uint32_t running = kNone;
    int64_t work = 0;
    int64_t slowdown = 0;  ///< of the running pass, permille
    int64_t since_ns = 0;  ///< time at which `work` was updated
    int communicating = 0;
    StreamingPass stream;  ///< of the running pass, if rows stream into or out of it

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
            follow(last[static_cast<size_t>(action.lane)], i, next_in_lane);
            if (launches && is_communication(action.what)) follow(launched, i, next_in_order);
        }
    }
    /// Whether a pass runs and does not wait for rows.
    [[nodiscard]] bool is_working() const { return running != kNone && !stream.waits(); }
    [[nodiscard]] int64_t speed() const { return communicating > 0 ? kFull : kFull + slowdown; }
    /// Time of the remaining work from since_ns on, at the present speed.
    [[nodiscard]] int64_t ns_left(CoreShare share) const {
        // work * sharing / per_ns, rounded up without leaving 64 bits.
        const int64_t per_ns = speed() * share.cores;
        const int64_t left = std::max<int64_t>(0, work);
        return left / per_ns * share.sharing +
               (left % per_ns * share.sharing + per_ns - 1) / per_ns;
    }
    /// Subtracts the work done until `now` at that speed.
    void work_until(int64_t now, int64_t at_speed, CoreShare share) {
        const int64_t alone = (now - since_ns) * at_speed;
        work -= alone / share.sharing * share.cores +
                alone % share.sharing * share.cores / share.sharing;
        since_ns = now;
    }

private:
    /// Makes `action` the successor of `previous`, if any, and the new `previous`.
    void follow(uint32_t& previous, uint32_t action, std::vector<uint32_t>& next) {
        if (previous != kNone) {
            next[previous] = action;
            ++missing[action];
        }
        previous = action;
    }
};

}  // namespace vocabpipe
