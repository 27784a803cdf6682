// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/overlap.hpp"

#include <memory>

namespace vocabpipe::bench {

/// The host as a rank's device, whose messages take the time of a modelled link
/// (src/runtime/transport/modelled_link.hpp). Collectives are not modelled and take their real
/// time.
[[nodiscard]] std::unique_ptr<Device> make_modelled_host(const Link& link);

}  // namespace vocabpipe::bench
