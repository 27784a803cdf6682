// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <functional>
#include <vector>

namespace vocabpipe {

/// Options of a tile link on any device.
struct TileLinkOptions {
    std::vector<int> ranks;             ///< members, in the ranks of the transport
    Channel channel = Channel::tensor;  ///< no other use between these ranks
    /// Called while a wait finds nothing new, so that other lanes advance; may be empty. On a
    /// device with streams only while the host waits for another host.
    std::function<void()> poll;
};

}  // namespace vocabpipe
