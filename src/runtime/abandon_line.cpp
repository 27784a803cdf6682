// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/abandon_line.hpp"

#include "src/runtime/wait.hpp"

#include <span>

namespace vocabpipe {

namespace {

/// Time between two looks: negligible in a grace period, but long compared to asking every peer
/// once.
constexpr int64_t kLookNs = 5'000'000;

}  // namespace

AbandonLine::AbandonLine(Transport& transport) : transport_(transport), rank_(transport.rank()) {
    if (rank_ != 0) {
        for (int message = 0; message < 2; ++message) expect(0);
    } else {
        for (int peer = 1; peer < transport.size(); ++peer) expect(peer);
    }
    missing_ = static_cast<int>(expected_.size());
}

void AbandonLine::begin_step() {
    ++step_;
    looked_ns_ = 0;
}

void AbandonLine::look(bool has_reported, const std::function<bool()>& wanted) {
    const int64_t now = now_ns();
    if (now - looked_ns_ < kLookNs) return;
    looked_ns_ = now;
    for (Message& message : expected_) {
        if (message.came || !transport_.test(message.ticket)) continue;
        message.came = true;
        --missing_;
        if (asked_step_ != 0) continue;
        asked_step_ = message.step;
        if (rank_ == 0) send_to_others();
    }
    if (asked_step_ == 0 && !has_reported && wanted()) {
        asked_step_ = step_;
        if (rank_ == 0) send_to_others();
    }
    // A message may be early: its sender may have begun a step that this rank has not.
    if (asked_step_ == step_ && !joined_) join();
    if (!joined_ || missing_ > 0 || leaves_) return;
    leaves_ = true;
    if (rank_ == 0) send_to_others();
}

void AbandonLine::join() {
    joined_ = true;
    if (rank_ != 0) send(0);
}

void AbandonLine::expect(int peer) {
    Message& message = expected_.emplace_back();
    message.ranks = {peer, rank_};
    message.ticket =
        transport_.start({.what = Do::receive,
                          .channel = Channel::abandon,
                          .ranks = message.ranks,
                          .receive = std::as_writable_bytes(std::span(&message.step, 1))});
}

void AbandonLine::send(int peer) {
    Message& message = sent_.emplace_back();
    message.ranks = {rank_, peer};
    message.step = asked_step_;
    message.ticket = transport_.start({.what = Do::send,
                                       .channel = Channel::abandon,
                                       .ranks = message.ranks,
                                       .send = std::as_bytes(std::span(&message.step, 1))});
}

void AbandonLine::send_to_others() {
    for (int peer = 1; peer < transport_.size(); ++peer) send(peer);
}

}  // namespace vocabpipe
