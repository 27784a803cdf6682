// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/message_transport.hpp"
#include "src/runtime/transport/shared_memory/segment.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::shared_memory {

/// Places of the ranks.
struct Neighbours {
    int rank = 0;
    /// [rank of the world] its place in the segment; -1: on another host.
    std::vector<int> place;
};

/// Messages between ranks of one host go through `segment`, all others through `others`, which may
/// be missing if all ranks are on this host.
///
/// A sender copies into a ring and a receiver out of it, both when they poll. So each rank touches
/// only its own memory and the rings, a message that fits into the ring is sent before it is
/// received, and withdrawing a transfer needs no other rank.
[[nodiscard]] std::unique_ptr<Transport> make_transport(std::shared_ptr<Segment> segment,
                                                        Neighbours neighbours,
                                                        std::optional<Communicator> others = {});

/// Options of connect_hosts().
struct HostOptions {
    size_t ring_bytes = 0;  ///< see SegmentLayout
    /// Ranks with the same name and node try to share; empty: the system's name.
    std::string host = {};
    int node = 0;  ///< from a launcher that knows which ranks share a host
    /// Called on one rank with a one-line message if a host cannot have a segment; may be empty.
    std::function<void(const std::string&)> note;
};

/// A communicator of the same ranks in which those of one host use a segment. If a host cannot have
/// one, its ranks keep using the transport of `control`, and the lowest of them reports why.
/// Collective; `control` must have no open transfers. Throws CommunicationError as `control` does.
[[nodiscard]] Communicator connect_hosts(Communicator control, const HostOptions& options);

}  // namespace vocabpipe::shared_memory
