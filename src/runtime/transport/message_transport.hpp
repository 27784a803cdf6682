// SPDX-License-Identifier: Apache-2.0
// Group communication over point-to-point messages, shared by the transports that have nothing
// else.
#pragma once

#include "src/runtime/transport/reused_slots.hpp"
#include "src/runtime/transport/transport.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe {

/// Expands every transfer into messages, linearly: worlds of such ranks are small, and messages of
/// one pair and channel then match in order without a tag per transfer.
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
    /// A rank's own block of a group's data.
    virtual void copy_own(Channel channel, std::span<const std::byte> from,
                          std::span<std::byte> to);
    /// True once complete; the request is then gone.
    [[nodiscard]] virtual bool test_request(Request request) = 0;
    /// Whether the host can add up what arrives; else a reduce is refused.
    [[nodiscard]] virtual bool memory_is_of_host() const { return true; }

private:
    /// What a reduce still does when its messages are there: the root adds up all partials, in
    /// group order and in fp32.
    struct Sum {
        std::vector<std::byte> partials;  ///< memory is kept for the next one
        std::span<std::byte> into;        ///< empty: nothing to do
        DType type = DType::fp32;
    };
    void start_reduce(Ticket ticket, const Transfer& transfer);
    void send(Ticket ticket, int peer, Channel channel, std::span<const std::byte> bytes);
    void receive(Ticket ticket, int peer, Channel channel, std::span<std::byte> bytes);

    struct Open {
        std::vector<Request> requests;  ///< that have not ended
        Sum sum;
    };
    ReusedSlots<Open> open_;  ///< [ticket]
};

}  // namespace vocabpipe
