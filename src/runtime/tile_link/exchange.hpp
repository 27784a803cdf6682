// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/wait.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe {

class HostExchange;

/// State shared by the operations of one link.
struct HostTeam {
    Transport& transport;
    const WaitOptions& wait;
    TileLinkOptions options;
    Channel channel = Channel::tensor;        ///< no other use between these ranks
    int self = 0;                             ///< this rank's number in the team
    std::vector<std::array<int, 2>> to = {};  ///< (this rank, member) for transfers
    std::vector<std::array<int, 2>> from = {};
    uint32_t operations = 0;          ///< started so far; the same on all members
    HostExchange* current = nullptr;  ///< operation that has not finished; null: none
    bool broken = false;              ///< an operation was destroyed before it finished
};

/// One all-to-all of a link on a host: receives of all pieces posted at the start, sends at
/// release. Pieces of one pair arrive in order, so only the next one of each member is tested.
class HostExchange final : public TileLink::Exchange {
public:
    /// Parts as TileLink::all_to_all() has checked them.
    HostExchange(HostTeam& team, std::string name, std::span<const TileLink::Outgoing> send,
                 std::span<const TileLink::Incoming> receive, TileLink::Order order);
    ~HostExchange() override;
    HostExchange(const HostExchange&) = delete;
    HostExchange& operator=(const HostExchange&) = delete;

    void release(int member, int pieces) override;
    [[nodiscard]] int wait(int member, int pieces) override;
    [[nodiscard]] bool test(int member, int pieces) override;
    void finish() override;
    /// Advances; returns whether anything was received or sent.
    bool progress();
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    /// Sent before each piece to say which one follows, so that the receiver need not trust the
    /// order of the sender's calls.
    struct Label {
        uint32_t operation = 0;
        uint32_t piece = 0;
        int64_t bytes = 0;
    };
    struct Flight {
        Ticket label = 0;
        Ticket bytes = 0;
        bool label_done = false;
    };
    /// Pieces for, or from, one member.
    template <typename Part>
    struct Side {
        Part part;
        std::vector<Label> labels;    ///< [piece]; peers hold pointers
        std::vector<Flight> flights;  ///< [piece]; of started pieces
        int started = 0;              ///< released, or posted
        int done = 0;                 ///< sent, or arrived
        [[nodiscard]] int pieces() const { return static_cast<int>(part.ends.size()); }
        [[nodiscard]] auto piece(int i) const { return tile_link::piece_of(part, i); }
    };
    using Outbox = Side<TileLink::Outgoing>;
    using Inbox = Side<TileLink::Incoming>;

    void post_receives(int member);
    void start_send(int member, int piece);
    bool advance_sends(int member);
    bool advance_receives(int member);
    void check_label(int member, int piece) const;
    void check_pieces(int member, int pieces, int most, const char* what) const;
    template <typename Done>
    void wait_until(Done&& done);
    [[nodiscard]] std::string where(const char* what, int member, int piece) const;
    /// Text of the first piece that a wait lacks.
    [[nodiscard]] std::string awaited() const;

    HostTeam& team_;
    std::string name_;
    uint32_t number_;  ///< number among the team's operations
    std::vector<Outbox> out_;
    std::vector<Inbox> in_;
    int awaited_member_ = -1;  ///< member of wait(); -1: finish() waits for all
    bool progressing_ = false;
    bool finished_ = false;
};

}  // namespace vocabpipe
