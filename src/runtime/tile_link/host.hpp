// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace vocabpipe {

/// What a link on a host is made of.
struct HostLinkOptions {
    std::vector<int> ranks;             ///< members, in the ranks of the transport
    Channel channel = Channel::tensor;  ///< nothing else uses it between these ranks
    /// Called while a wait finds nothing new, so that other lanes go on; may be empty.
    std::function<void()> poll;
};

/// A link over the messages of a transport: threads, processes, several hosts. Every piece is a
/// label of a few bytes and a message; the label says which operation and piece comes, so that one
/// that was lost or sent twice is an error where it happened, not wrong numbers. `wait` and
/// `transport` must outlive the link. Throws UsageError unless `ranks` are distinct, exist, and
/// have this rank among them.
[[nodiscard]] std::unique_ptr<TileLink> make_host_tile_link(Transport& transport,
                                                            const WaitOptions& wait,
                                                            HostLinkOptions options);

}  // namespace vocabpipe
