// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <memory>

namespace vocabpipe {

/// A link over the messages of a transport: threads, processes, several hosts. Every piece is a
/// label of a few bytes and a message. The label names operation and piece, so that a lost or
/// repeated piece is an error at once instead of wrong numbers later. Nothing else uses `channel`
/// between these ranks. `wait` and `transport` must outlive the link. Throws UsageError unless
/// `ranks` are distinct, exist, and have this rank among them.
[[nodiscard]] std::unique_ptr<TileLink> make_host_tile_link(Transport& transport,
                                                            const WaitOptions& wait,
                                                            TileLinkOptions options,
                                                            Channel channel = Channel::tensor);

}  // namespace vocabpipe
