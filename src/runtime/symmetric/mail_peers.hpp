// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/symmetric/peers.hpp"
#include "src/runtime/tile_link/mail.hpp"

#include <memory>
#include <vector>

namespace vocabpipe::symmetric {

/// Members that reach each other by messages: a push is a letter with the tile's bytes, a pull one
/// that asks and one that answers. Each member has its own buffer and signals, and takes letters
/// while it polls. `ranks`: members, in ranks of the world. The mail must outlive it.
[[nodiscard]] std::unique_ptr<Peers> make_mail_peers(const Sizes& sizes, int self,
                                                     std::vector<int> ranks, TileMail& mail);

}  // namespace vocabpipe::symmetric
