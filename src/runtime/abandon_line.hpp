// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace vocabpipe {

/// How ranks agree to abandon the running step, by messages besides those of the step. A rank that
/// holds back its part of the gradient norm keeps every rank from updating, so a rank may abandon a
/// step that it has not reported without asking the others first:
///
///     rank 0 <- join    a rank holds back, or has been asked; the step goes on meanwhile
///     rank 0 -> ask     to all, with the first of them
///     rank 0 -> leave   to all, when all have joined
///
/// Until all have joined, a lost rank is noticed and reported by the step itself. A communicator
/// has one line, for one abandoned step.
class AbandonLine {
public:
    /// The transport must outlive it; nothing else may use Channel::abandon.
    explicit AbandonLine(Transport& transport);
    AbandonLine(const AbandonLine&) = delete;
    AbandonLine& operator=(const AbandonLine&) = delete;

    /// Begins a step that can be abandoned. All ranks must call it for the same steps.
    void begin_step();
    /// Handles messages that have arrived, at most every few milliseconds. `wanted`: whether this
    /// rank wants to abandon the step; not asked once it has reported the step.
    void look(bool has_reported, const std::function<bool()>& wanted);
    /// Whether this rank must not report the running step.
    [[nodiscard]] bool holds() const { return joined_ && asked_step_ == step_; }
    /// Whether all ranks leave the running step.
    [[nodiscard]] bool leaves() const { return leaves_; }

private:
    /// The number of a step, to or from a peer.
    struct Message {
        std::array<int, 2> ranks{};  ///< source, destination
        int64_t step = 0;
        Ticket ticket = 0;
        bool came = false;
    };
    void expect(int peer);
    void send(int peer);
    void send_to_others();
    void join();

    Transport& transport_;
    const int rank_;
    // Deques, because the transport keeps pointers to the messages.
    std::deque<Message> expected_;  ///< rank 0: join of each; the others: ask and leave
    std::deque<Message> sent_;
    int missing_;             ///< messages of expected_ that have not come
    int64_t step_ = 0;        ///< the running or the next step
    int64_t asked_step_ = 0;  ///< the step to abandon; 0: none
    bool joined_ = false;
    bool leaves_ = false;
    int64_t looked_ns_ = 0;
};

}  // namespace vocabpipe
