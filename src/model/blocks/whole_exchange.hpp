// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tile_link.hpp"

#include <functional>
#include <string_view>

namespace vocabpipe {

/// An all-gather without pieces: every member's part(member), of equal sizes, comes to all; the own
/// one is where it shall be. `make` makes it, once receives are posted; empty: it is made. `what`:
/// for messages.
void exchange_whole(TileLink& link, std::string_view what, const std::function<Tensor(int)>& part,
                    const std::function<void()>& make = {});

}  // namespace vocabpipe
