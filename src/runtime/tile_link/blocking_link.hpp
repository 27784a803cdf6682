// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tile_link.hpp"

#include <memory>

namespace vocabpipe {

/// A link whose exchanges hide nothing: what is released leaves with the next wait, test or the end
/// of the operation, and a wait for pieces of one member waits for those of all. With one piece for
/// every exchange, each has ended before a product of what arrives begins, and begins after the
/// last product of what leaves. Results are those of `inner`. What links of devices that overlap
/// are compared with.
[[nodiscard]] std::unique_ptr<TileLink> make_blocking_link(std::unique_ptr<TileLink> inner);

}  // namespace vocabpipe
