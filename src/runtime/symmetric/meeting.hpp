// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/tile_link/mail.hpp"
#include "vocabpipe/symmetric_memory.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::symmetric {

/// Members who tell each other texts before they have a memory.
class Meeting final : private MailLine {
public:
    /// All members open the same meetings. The arguments must outlive it.
    Meeting(Communicator& world, const SymmetricMemoryOptions& options, int self);
    ~Meeting() override { mail_.close(line_); }
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

    /// The texts `mine` of all members. Collective, with the deadline of the world.
    [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
    /// Equal on all members, and different from that of all other meetings of theirs.
    [[nodiscard]] uint64_t number() const { return line_; }

private:
    struct Round {
        std::vector<std::string> texts;
        std::vector<bool> there;
    };
    [[nodiscard]] std::optional<std::span<std::byte>> place(int rank,
                                                            const Letter& letter) override;
    void arrived(int rank, const Letter& letter) override;
    [[nodiscard]] Round& round(int64_t number);

    TileMail& mail_;
    const WaitOptions& wait_;
    const SymmetricMemoryOptions& options_;
    int self_;
    int64_t rounds_ = 0;  ///< so far
    std::map<int64_t, Round> open_;
    uint64_t line_;  ///< last: what came early is taken when it opens
};

}  // namespace vocabpipe::symmetric
