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

/// Who is where.
struct Neighbours {
    int rank = 0;
    /// Of every rank of the world, its place in the segment; -1: on another host.
    std::vector<int> place;
};

/// Messages between ranks of one host through `segment`, to and from all others through `others`,
/// which may be missing where all ranks are on this host.
///
/// A sender copies into a ring and a receiver out of it, both as they poll. So each rank reads and
/// writes its own memory only, a message that fits into the ring has left before it is received,
/// and withdrawing a transfer needs no other rank.
[[nodiscard]] std::unique_ptr<Transport> make_transport(std::shared_ptr<Segment> segment,
                                                        Neighbours neighbours,
                                                        std::optional<Communicator> others = {});

/// What connect_hosts() may be told.
struct HostOptions {
    size_t ring_bytes = 0;  ///< see SegmentLayout
    /// Ranks with the same name and node try to share; empty: the system's name.
    std::string host = {};
    int node = 0;  ///< for a launcher that knows better than names who is where
    /// Called on one rank with one line if a host cannot have a segment; may be empty.
    std::function<void(const std::string&)> note;
};

/// A communicator of the same ranks in which those of one host use a segment. Where a host can have
/// none, its ranks go on with what `control` has, and the lowest of them says why. Collective;
/// needs a communicator with nothing under way. Throws CommunicationError as `control` does.
[[nodiscard]] Communicator connect_hosts(Communicator control, const HostOptions& options);

}  // namespace vocabpipe::shared_memory
