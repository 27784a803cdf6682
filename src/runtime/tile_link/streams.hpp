// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/link_transport.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <memory>

namespace vocabpipe {

/// A link on its own stream, on which steps run one after the other. Step (o, piece) sends a piece
/// to member rank + o and receives that of rank - o: o = 1, 2, ..., all pieces of one o before the
/// next. release() records an event on the pass's stream, wait() lets that stream wait for the
/// step's event; no multiprocessor waits for a signal, and the host waits for no stream
/// (docs/overlap.md). `pass`: stream of the passes that use the link. `transport` must be a
/// transport between GPUs, which is also a LinkTransport. It and `wait` must outlive the link. On
/// the calling thread's current GPU. Collective over the world: every rank makes one link, and no
/// rank is in two of the teams. Throws UsageError as make_host_tile_link().
[[nodiscard]] std::unique_ptr<TileLink> make_stream_tile_link(Transport& transport,
                                                              const WaitOptions& wait,
                                                              cudaStream_t pass,
                                                              TileLinkOptions options,
                                                              Channel channel = Channel::tensor);

/// For a rank without a team, while others make their links.
void join_no_tile_link(Transport& transport);

}  // namespace vocabpipe
