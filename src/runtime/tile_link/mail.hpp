// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/reused_slots.hpp"
#include "src/runtime/transport/transport.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace vocabpipe {

/// What precedes the bytes of a message of the mail.
struct Letter {
    uint64_t line = 0;               ///< TileMail::open()
    int64_t bytes = 0;               ///< that follow
    std::array<int64_t, 6> words{};  ///< of the line's users
};

/// One rank's end of a line, which takes what arrives there.
class MailLine {
public:
    virtual ~MailLine() = default;
    /// Where the bytes of a letter from a rank of the world go; none: this rank is not ready for
    /// it, so it is kept until redeliver(). Throws CommunicationError for one that fits nowhere.
    [[nodiscard]] virtual std::optional<std::span<std::byte>> place(int rank,
                                                                    const Letter& letter) = 0;
    /// The bytes are there.
    virtual void arrived(int rank, const Letter& letter) = 0;
};

/// Messages with labels between any two ranks, over one channel of the transport. The label comes
/// first and says which line the bytes are for, so that any number of links and memories, with any
/// number of operations under way, share the channel: none waits until another takes its bytes.
/// What comes too early is kept in memory of its own. Letters of a pair of ranks are delivered in
/// the order sent, except those that were kept. One per rank and world; after an error it is
/// unusable.
class TileMail {
public:
    /// The transport must outlive it; nothing else may use Channel::mail.
    explicit TileMail(Transport& transport);
    ~TileMail();
    TileMail(const TileMail&) = delete;
    TileMail& operator=(const TileMail&) = delete;

    [[nodiscard]] Transport& transport() { return transport_; }

    /// Opens a line between ranks of the world, with this one; returns its number, which is that of
    /// the other ends if all open lines of the same ranks in the same order. Waits for nobody.
    [[nodiscard]] uint64_t open(std::span<const int> ranks, MailLine& line);
    /// Nothing is delivered there any more; what comes later is dropped.
    void close(uint64_t line) noexcept;
    /// Delivers what was kept for a line; call when it has become ready for more.
    void redeliver(uint64_t line);

    /// Sends a letter and its bytes, which stay where they are until sent() has returned true.
    [[nodiscard]] uint32_t send(int rank, const Letter& letter, std::span<const std::byte> bytes);
    /// Whether it has been sent; the number is then invalid.
    [[nodiscard]] bool sent(uint32_t number);
    /// Sends a letter with bytes of the mail's own, about which nobody asks.
    void send(int rank, const Letter& letter, std::vector<std::byte> bytes);

    /// Advances everything; returns whether something came or has been sent. Never blocks.
    bool advance();
    /// Whether these ranks have taken everything that was sent to them.
    [[nodiscard]] bool idle(std::span<const int> ranks) const;
    /// Withdraws everything, and ends the mail: for a rank that ends with an error.
    void cancel() noexcept;

private:
    struct Sending {
        std::array<int, 2> ranks{};  ///< source, destination
        Letter letter;
        std::vector<std::byte> own;
        std::span<const std::byte> bytes;
        Ticket label = 0;
        Ticket body = 0;
        bool label_sent = false;
        bool sent = false;
        bool asked_for = false;  ///< by sent()
    };
    /// What another rank sends, one letter at a time, and what is sent to it.
    struct Peer {
        std::array<int, 2> ranks{};  ///< source, destination
        Letter letter;               ///< expected, or the one whose bytes are expected
        std::vector<std::byte> kept;
        Ticket ticket = 0;
        bool in_body = false;
        bool keeps = false;  ///< the bytes go to `kept`
        std::deque<uint32_t> sending;
    };
    struct Kept {
        int rank = 0;
        Letter letter;
        std::vector<std::byte> bytes;
    };
    void check_usable() const;
    uint32_t start(int rank, Sending sending);
    void expect(Peer& peer);
    void begin_body(Peer& peer);
    void end_body(Peer& peer);
    bool advance_sends(Peer& peer);
    bool advance_receives(Peer& peer);
    [[nodiscard]] bool deliver(const Kept& kept);

    Transport& transport_;
    std::map<std::vector<int>, int64_t> openings_;  ///< by ranks
    std::map<uint64_t, MailLine*> lines_;
    std::set<uint64_t> closed_;
    std::map<int, Peer> peers_;  ///< by rank; the transport points to them
    std::map<uint64_t, std::deque<Kept>> kept_;
    ReusedSlots<Sending> sends_;
    bool advancing_ = false;
    bool broken_ = false;
};

}  // namespace vocabpipe
