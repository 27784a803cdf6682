// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/lowered.hpp"
#include "vocabpipe/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Messages between two ranks on one channel arrive in the order sent; channels are independent.
enum class Channel : uint8_t {
    forward = 1,
    backward = 2,
    collective = 3,
    control = 4,
    tensor = 5,   ///< inside passes (tile_link.hpp): the team that shares a stage
    expert = 6,   ///< the team that shares a layer's experts
    context = 7,  ///< the team that shares sequences
    abandon = 8,  ///< abandons the running step (abandon_line.hpp)
    mail = 9,     ///< links and symmetric memory that users open (tile_link/mail.hpp)
};
inline constexpr int kChannels = 10;  ///< channel numbers are below

[[nodiscard]] constexpr Channel channel_of(Lane lane) {
    return lane == Lane::forward    ? Channel::forward
           : lane == Lane::backward ? Channel::backward
                                    : Channel::collective;
}

[[nodiscard]] constexpr const char* name_of(Channel channel) {
    switch (channel) {
        case Channel::forward:
            return "forward";
        case Channel::backward:
            return "backward";
        case Channel::collective:
            return "collective";
        case Channel::control:
            return "control";
        case Channel::tensor:
            return "tensor";
        case Channel::expert:
            return "expert";
        case Channel::context:
            return "context";
        case Channel::abandon:
            return "abandon";
        case Channel::mail:
            return "mail";
    }
    return "unknown";
}

/// Position of `rank` in a group; the group's size if it is not a member.
[[nodiscard]] inline int member_of(std::span<const int> ranks, int rank) {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

/// One rank's part of a communication, which Do describes.
struct Transfer {
    Do what = Do::send;
    Channel channel = Channel::collective;
    std::span<const int> ranks;  ///< members; send and receive: source, destination
    int root = -1;
    DType type = DType::fp32;         ///< of the elements; only for reduce
    std::span<const std::byte> send;  ///< what this rank reads; of a broadcast, on the root alone
    /// What this rank writes: nothing for send, and elsewhere than on the root for gather and
    /// reduce. `send` or this rank's part of it may be the same memory (broadcast, all_gather,
    /// gather, all_gather_v): then the part is not copied.
    std::span<std::byte> receive;
    /// Byte at which each member's block begins, in `send` (all_to_all) or in `receive`
    /// (all_gather_v; gather: on the root). Group size entries, and where `block_end` is empty one
    /// more, the end of the last block.
    std::span<const int64_t> block_begin;
    /// Byte at which each block ends; empty: where the next one begins.
    std::span<const int64_t> block_end;
    /// For all_to_all: this rank's own block is not read from `receive`, so it need not be copied
    /// there.
    bool own_stays = false;

    /// A member's block of `send` or `receive`.
    template <typename Bytes>
    [[nodiscard]] Bytes block(Bytes all, size_t member) const {
        const int64_t begin = block_begin[member];
        const int64_t end = block_end.empty() ? block_begin[member + 1] : block_end[member];
        return all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    }
};

/// What a rank shares with another one.
enum class Nearness : uint8_t {
    far,      ///< messages alone
    host,     ///< memory of /dev/shm
    process,  ///< all memory: they are threads
};

/// Handle of a started transfer.
using Ticket = uint32_t;

/// Moves bytes. Starts never block; completion is seen by test(). Ordered reductions are built by
/// lowering from all_to_all, ordered_sum and gather, so that every transport gives the same bits.
class Transport {
public:
    virtual ~Transport() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// What this rank shares with another one; equal on both.
    [[nodiscard]] virtual Nearness nearness(int /*peer*/) const { return Nearness::far; }
    /// The object that ranks of one process share under a key: the first that asks makes it, and
    /// it lives as long as one of them holds it. Null elsewhere.
    [[nodiscard]] virtual std::shared_ptr<void> share_in_process(
        uint64_t /*key*/, const std::function<std::shared_ptr<void>()>& /*make*/) {
        return nullptr;
    }
    /// Makes communicators and connections before the first step of new programs, so that no step
    /// has to. `routes`: of all ranks, equal on every rank. No transfer may be open. Collective.
    virtual void prepare(const std::vector<Route>& /*routes*/) {}
    /// The spans must stay valid until test() has returned true.
    [[nodiscard]] virtual Ticket start(const Transfer& transfer) = 0;
    /// True once complete or, on a device with streams, once enqueued; the ticket is then invalid.
    /// Throws CommunicationError if the world failed.
    [[nodiscard]] virtual bool test(Ticket ticket) = 0;
    /// Called while a rank waits for its device: throws CommunicationError if a transfer or the
    /// world has failed. Not needed if test() throws it.
    virtual void check_health() {}
    /// Ends or withdraws every open transfer of this rank and waits for no other rank. Afterwards
    /// no rank reads or writes this one's memory, and nothing on this rank's streams waits for a
    /// rank; once they have drained, the memory may be freed. The channels are unusable from then
    /// on: only for a rank that ends with an error.
    virtual void cancel() noexcept = 0;
    /// Tells the other ranks that this one failed, if the transport can.
    virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace vocabpipe
