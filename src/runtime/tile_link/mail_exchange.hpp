// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/mail_link.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

/// One all-to-all of a link of open_tile_link(). Pieces of one pair arrive in order.
class MailExchange final : public TileLink::Exchange {
public:
    /// Parts as TileLink::all_to_all() has checked them.
    MailExchange(MailLink& link, std::string name, std::span<const TileLink::Outgoing> send,
                 std::span<const TileLink::Incoming> receive);
    ~MailExchange() override;
    MailExchange(const MailExchange&) = delete;
    MailExchange& operator=(const MailExchange&) = delete;

    void release(int member, int pieces) override;
    [[nodiscard]] int wait(int member, int pieces) override;
    [[nodiscard]] bool test(int member, int pieces) override;
    void finish() override;

    /// Where the piece of a letter goes. Throws CommunicationError if it is not the next one.
    [[nodiscard]] std::span<std::byte> place(int member, const Letter& letter) const;
    /// The next piece of a member is there.
    void arrived(int member) { ++in_.at(static_cast<size_t>(member)).done; }

private:
    struct Outbox {
        TileLink::Outgoing part;
        std::vector<uint32_t> letters;  ///< [piece]; of released pieces
        int done = 0;                   ///< sent
        [[nodiscard]] int pieces() const { return static_cast<int>(part.ends.size()); }
        [[nodiscard]] int released() const { return static_cast<int>(letters.size()); }
    };
    struct Inbox {
        TileLink::Incoming part;
        int done = 0;  ///< arrived
        [[nodiscard]] int pieces() const { return static_cast<int>(part.ends.size()); }
    };
    void copy_own(int piece);
    /// Counts what has been sent; returns whether nothing is missing.
    [[nodiscard]] bool all_done();
    [[nodiscard]] std::string where(const char* what, int member, int piece) const;
    /// Text of the first piece that a wait for a member lacks; -1: for all.
    [[nodiscard]] std::string awaited(int member) const;

    MailLink& link_;
    std::string name_;
    int64_t number_;  ///< number among the link's operations
    std::vector<Outbox> out_;
    std::vector<Inbox> in_;
    bool finished_ = false;
};

}  // namespace vocabpipe
