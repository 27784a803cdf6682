// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport_streams.hpp"
#include "vocabpipe/world.hpp"

#include <memory>

namespace vocabpipe::device_copies {

/// A transport between ranks that are threads of one process: a message is one copy on the
/// receiver's stream, after an event of the sender's. Collective; `control` must outlive it.
[[nodiscard]] std::unique_ptr<Transport> make_transport(Communicator& control,
                                                        const TransportStreams& streams);

}  // namespace vocabpipe::device_copies
