// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "vocabpipe/device.hpp"

namespace vocabpipe {

/// A device without operators (kernels/null/README.md); its memory is the host's.
[[nodiscard]] std::unique_ptr<Device> make_null_device();

}  // namespace vocabpipe
