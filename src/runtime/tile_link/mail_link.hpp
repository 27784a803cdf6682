// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/tile_link/mail.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace vocabpipe {

class MailExchange;

/// A link of open_tile_link(): operations are told apart by the labels of the mail.
class MailLink final : public TileLink, private MailLine {
public:
    MailLink(Communicator& world, TileLinkOptions options);
    ~MailLink() override;
    MailLink(const MailLink&) = delete;
    MailLink& operator=(const MailLink&) = delete;

    [[nodiscard]] int rank() const override { return self_; }
    [[nodiscard]] int size() const override { return static_cast<int>(options_.ranks.size()); }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name,
                                       Order order) override;
    void poll() override { (void)mail_.advance(); }

private:
    friend class MailExchange;
    [[nodiscard]] std::optional<std::span<std::byte>> place(int rank,
                                                            const Letter& letter) override;
    void arrived(int rank, const Letter& letter) override;

    TileMail& mail_;
    const WaitOptions& wait_;
    TileLinkOptions options_;
    int self_;
    int64_t operations_ = 0;                    ///< started so far; the same on all members
    std::map<int64_t, MailExchange*> running_;  ///< by number
    bool broken_ = false;                       ///< an operation was destroyed before it finished
    uint64_t line_;  ///< last: what came early is asked for when it opens
};

}  // namespace vocabpipe
