// SPDX-License-Identifier: Apache-2.0
// A device whose tile links wait: what the links of a device are to leave the bits of.
#pragma once

#include "vocabpipe/device.hpp"

#include <memory>

namespace vocabpipe::testing {

/// `inner`, but what members of a team exchange goes through the host's memory and the
/// communicator's messages. Nothing moves before a member has released all it has; then it waits
/// for its device, for all others, and for its device again.
[[nodiscard]] std::unique_ptr<Device> make_blocking_device(std::unique_ptr<Device> inner);

}  // namespace vocabpipe::testing
