// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/symmetric/peers.hpp"
#include "vocabpipe/world.hpp"

#include <memory>
#include <vector>

namespace vocabpipe::symmetric {

/// Signals of a member: those of the options, then one that each member raises by rank_notify(),
/// then one that each raises at barriers.
[[nodiscard]] inline int all_signals(const SymmetricMemoryOptions& options) {
    return options.signals + 2 * static_cast<int>(options.ranks.size());
}

/// The memory, however its members reach each other: checks, waits and errors.
[[nodiscard]] std::unique_ptr<SymmetricMemory> make_memory(Communicator& world,
                                                           SymmetricMemoryOptions options, int self,
                                                           std::unique_ptr<Peers> peers);

}  // namespace vocabpipe::symmetric
