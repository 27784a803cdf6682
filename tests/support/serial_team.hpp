// SPDX-License-Identifier: Apache-2.0
// A team of threads that exchange whole tensors: what a tile link is to be like, in one page.
#pragma once

#include "tests/support/blocking_exchange.hpp"
#include "vocabpipe/tile_link.hpp"

#include <barrier>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace vocabpipe::testing {

/// Shared by the members. Nothing moves before all members have released all they have; then
/// everybody copies what it gets, and nobody goes on before all have.
class SerialTeam {
public:
    explicit SerialTeam(int members)
        : members_(members), barrier_(members), offers_(static_cast<size_t>(members)) {}

    /// The end of one member, for its thread. Gone, the others do not wait for it any more.
    [[nodiscard]] std::unique_ptr<TileLink> link(int rank) {
        return std::make_unique<Link>(*this, rank);
    }

private:
    class SerialExchange final : public BlockingExchange {
    public:
        SerialExchange(SerialTeam& team, int rank, std::span<const TileLink::Outgoing> send,
                       std::span<const TileLink::Incoming> receive, std::string_view name)
            : BlockingExchange(send, receive, name), team_(team), rank_(rank) {}

    private:
        void move_all() override {
            team_.offers_[static_cast<size_t>(rank_)] = this;
            team_.barrier_.arrive_and_wait();
            for (size_t member = 0; member < receive().size(); ++member) {
                const SerialExchange& from = *team_.offers_[member];
                const auto& sent = from.send()[static_cast<size_t>(rank_)].bytes;
                const auto& place = receive()[member].bytes;
                if (from.name() != name() || sent.size() != place.size()) {
                    throw std::logic_error(name() + ": another member is at " + from.name());
                }
                // An own part may be where it shall be, and others read it meanwhile.
                if (sent.empty() || sent.data() == place.data()) continue;
                std::memmove(place.data(), sent.data(), sent.size());
            }
            team_.barrier_.arrive_and_wait();
        }

        SerialTeam& team_;
        int rank_;
    };

    class Link final : public TileLink {
    public:
        Link(SerialTeam& team, int rank) : team_(team), rank_(rank) {}
        ~Link() override { team_.barrier_.arrive_and_drop(); }

        [[nodiscard]] int rank() const override { return rank_; }
        [[nodiscard]] int size() const override { return team_.members_; }
        [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                           std::span<const Incoming> receive, Name name,
                                           Order /*order*/) override {
            return Operation(
                std::make_unique<SerialExchange>(team_, rank_, send, receive, name.what));
        }
        void poll() override {}

    private:
        SerialTeam& team_;
        int rank_;
    };

    int members_;
    std::barrier<> barrier_;
    std::vector<const SerialExchange*> offers_;  ///< [member] of the exchange that runs
};

}  // namespace vocabpipe::testing
