// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

namespace vocabpipe {

/// How ranks agree to abandon the step that runs, by messages beside those of the step. A rank that
/// holds back its part of the gradient norm keeps every rank from updating, so whoever wants to
/// abandon a step that it has not reported need not ask whether it may:
///
///     rank 0 <- join    a rank holds back, or has been asked; the step goes on meanwhile
///     rank 0 -> ask     to all, with the first of them
///     rank 0 -> leave   to all, when all have joined
///
/// Until all have joined, a rank that is lost is missed in the step, and reported there. A
/// communicator has one line, for one abandoned step.
class AbandonLine {
public:
    /// The transport must outlive it, and go without another message on this channel.
    explicit AbandonLine(Transport& transport);
    AbandonLine(const AbandonLine&) = delete;
    AbandonLine& operator=(const AbandonLine&) = delete;

    /// A step begins that can be abandoned; every rank counts the same ones.
    void begin_step();
    /// Every few milliseconds, takes what has come. `wanted`: whether this rank wants to abandon
    /// the step, with which it may no longer begin when it has reported it.
    void look(bool has_reported, const std::function<bool()>& wanted);
    /// This rank must not report the step that runs.
    [[nodiscard]] bool holds() const { return joined_ && asked_step_ == step_; }
    /// Every rank leaves the step that runs.
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
    // Messages keep their places, for the transport holds on to them.
    std::deque<Message> expected_;  ///< rank 0: join of each; the others: ask and leave
    std::deque<Message> sent_;
    int missing_;             ///< of expected_, those that have not come
    int64_t step_ = 0;        ///< that runs, or is to begin
    int64_t asked_step_ = 0;  ///< that is to be abandoned; 0: none
    bool joined_ = false;
    bool leaves_ = false;
    int64_t looked_ns_ = 0;
};

}  // namespace vocabpipe
