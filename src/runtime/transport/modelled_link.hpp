// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/overlap.hpp"

#include <memory>

namespace vocabpipe {

/// A transport whose messages take the time of a modelled link: a message that its sender started
/// at time s arrives at max(link free, s) + piece_ns + bytes / rate + latency. Every rank has one
/// link for all that it receives, which is free when the last message has left it. The messages are
/// sent by `inner`, and nothing sleeps or spins to fill the time, so that computing can use it. For
/// benchmarks on machines whose own transport differs much from a network; call results modelled.
///
/// Messages (send, receive) are delayed; other transfers pass through. Ranks must share a clock:
/// threads, or processes of one host. `inner` must outlive it, and all ranks must use one. Throws
/// UsageError for a rate that is not positive.
[[nodiscard]] std::unique_ptr<Transport> make_modelled_link(Transport& inner, const Link& link);

}  // namespace vocabpipe
