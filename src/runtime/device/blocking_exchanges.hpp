// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/device/forwarding_device.hpp"
#include "src/runtime/tile_link/blocking_link.hpp"

#include <memory>

namespace vocabpipe {

/// A device whose tensor, context and expert ranks exchange with blocking links.
class BlockingExchanges final : public ForwardingDevice {
public:
    using ForwardingDevice::ForwardingDevice;

    [[nodiscard]] std::unique_ptr<TileLink> open_tile_link(Transport& transport,
                                                           const WaitOptions& wait,
                                                           const TileLinkOptions& options,
                                                           Axis axis) override {
        return make_blocking_link(ForwardingDevice::open_tile_link(transport, wait, options, axis));
    }
};

}  // namespace vocabpipe
