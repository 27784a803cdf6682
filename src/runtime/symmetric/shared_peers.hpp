// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/symmetric/peers.hpp"

#include <cstddef>
#include <memory>

namespace vocabpipe::symmetric {

/// Bytes of a memory that all members have mapped.
[[nodiscard]] size_t shared_bytes(const Sizes& sizes);

/// Page-aligned zeros of that many bytes, for members that are threads.
[[nodiscard]] std::shared_ptr<void> make_shared_bytes(const Sizes& sizes);

/// Members that have one memory of shared_bytes() in common. `owner` keeps it; it begins with
/// zeros.
[[nodiscard]] std::unique_ptr<Peers> make_shared_peers(const Sizes& sizes, int self,
                                                       std::shared_ptr<void> owner,
                                                       std::byte* memory);

}  // namespace vocabpipe::symmetric
