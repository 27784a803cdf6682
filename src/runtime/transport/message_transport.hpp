// SPDX-License-Identifier: Apache-2.0
// Group communication built from point-to-point messages, for transports that have nothing else.
#pragma once

#include "src/runtime/transport/reused_slots.hpp"
#include "src/runtime/transport/transport.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Turns every transfer into direct messages between all members: such worlds are small, and
/// messages of one pair and channel then match in order without a tag per transfer.
class MessageTransport : public Transport {
public:
    [[nodiscard]] Ticket start(const Transfer& transfer) final;
    [[nodiscard]] bool test(Ticket ticket) final;

protected:
    using Request = uint32_t;
    [[nodiscard]] virtual Request post_send(int peer, Channel channel,
                                            std::span<const std::byte> bytes) = 0;
    [[nodiscard]] virtual Request post_receive(int peer, Channel channel,
                                               std::span<std::byte> bytes) = 0;
    /// Copies a rank's own block of a group's data.
    virtual void copy_own(Channel channel, std::span<const std::byte> from,
                          std::span<std::byte> to);
    /// True once complete; the request is then invalid.
    [[nodiscard]] virtual bool test_request(Request request) = 0;
    /// Whether the host can add up received data; if not, a reduce is refused.
    [[nodiscard]] virtual bool memory_is_of_host() const { return true; }

private:
    /// The end of a reduce, after its messages: the root adds up all partials, in group order and
    /// in fp32.
    struct Sum {
        std::vector<std::byte> partials;  ///< kept to reuse its memory
        std::span<std::byte> into;        ///< empty: nothing to do
        DType type = DType::fp32;
    };
    void start_reduce(Ticket ticket, const Transfer& transfer);
    void send(Ticket ticket, int peer, Channel channel, std::span<const std::byte> bytes);
    void receive(Ticket ticket, int peer, Channel channel, std::span<std::byte> bytes);

    struct Open {
        std::vector<Request> requests;  ///< not complete yet
        Sum sum;
    };
    ReusedSlots<Open> open_;  ///< [ticket]
};

}  // namespace vocabpipe
