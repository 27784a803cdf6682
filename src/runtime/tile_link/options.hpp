// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <functional>
#include <vector>

namespace vocabpipe {

/// What a tile link is made of, on any device.
struct TileLinkOptions {
    std::vector<int> ranks;             ///< members, in the ranks of the transport
    Channel channel = Channel::tensor;  ///< nothing else uses it between these ranks
    /// Called while a wait finds nothing new, so that other lanes go on; may be empty. On a device
    /// with streams that is while the host waits for another host.
    std::function<void()> poll;
};

}  // namespace vocabpipe
