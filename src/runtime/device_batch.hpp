// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// A step's tokens, labels, loss gradients, masks and columns in the memory of a device.
class DeviceBatch {
public:
    /// The same microbatches with their spans in the device's memory, for work enqueued after this
    /// call; valid until the next load, before which that work must have run.
    [[nodiscard]] std::span<const Microbatch> load(Device& device,
                                                   std::span<const Microbatch> host);

private:
    DeviceMemory memory_;
    DeviceMemory staged_;  ///< memory of the host
    std::vector<Microbatch> microbatches_;
};

}  // namespace vocabpipe
