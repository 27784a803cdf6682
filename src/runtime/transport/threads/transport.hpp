// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/message_transport.hpp"

#include <memory>

namespace vocabpipe::threads {

/// Shared by the ranks of one world of threads: a mailbox per (source, destination, channel).
class Hub;

[[nodiscard]] std::shared_ptr<Hub> make_hub(int ranks);
/// Wakes every rank with a CommunicationError; the first reason is kept.
void abort(Hub& hub, const std::string& reason) noexcept;
[[nodiscard]] std::unique_ptr<Transport> make_transport(std::shared_ptr<Hub> hub, int rank);

}  // namespace vocabpipe::threads
