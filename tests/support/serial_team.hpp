// SPDX-License-Identifier: Apache-2.0
// A team of threads that exchange whole tensors: what a tile link is to be like, in one page.
#pragma once

#include "vocabpipe/tile_link.hpp"

#include <barrier>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
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
    struct Offer {
        std::vector<TileLink::Outgoing> parts;
        std::string name;
    };

    class SerialExchange final : public TileLink::Exchange {
    public:
        SerialExchange(SerialTeam& team, int rank, std::span<const TileLink::Outgoing> send,
                       std::span<const TileLink::Incoming> receive, std::string_view name)
            : team_(team),
              rank_(rank),
              offer_{.parts = {send.begin(), send.end()}, .name = std::string(name)},
              receive_(receive.begin(), receive.end()),
              released_(send.size(), 0) {}

        void release(int member, int pieces) override {
            auto& released = released_.at(static_cast<size_t>(member));
            released = std::max(released, pieces);
        }
        [[nodiscard]] int wait(int member, int /*pieces*/) override {
            exchange();
            return static_cast<int>(receive_.at(static_cast<size_t>(member)).ends.size());
        }
        [[nodiscard]] bool test(int /*member*/, int /*pieces*/) override { return exchanged_; }
        void finish() override { exchange(); }

    private:
        void exchange() {
            if (exchanged_) return;
            for (size_t member = 0; member < released_.size(); ++member) {
                if (released_[member] != static_cast<int>(offer_.parts[member].ends.size())) {
                    throw std::logic_error(offer_.name + ": not all is released");
                }
            }
            team_.offers_[static_cast<size_t>(rank_)] = &offer_;
            team_.barrier_.arrive_and_wait();
            for (size_t member = 0; member < receive_.size(); ++member) {
                const Offer& from = *team_.offers_[member];
                const auto& sent = from.parts[static_cast<size_t>(rank_)].bytes;
                const auto& place = receive_[member].bytes;
                if (from.name != offer_.name || sent.size() != place.size()) {
                    throw std::logic_error(offer_.name + ": another member is at " + from.name);
                }
                // An own part may be where it shall be, and others read it meanwhile.
                if (sent.empty() || sent.data() == place.data()) continue;
                std::memmove(place.data(), sent.data(), sent.size());
            }
            team_.barrier_.arrive_and_wait();
            exchanged_ = true;
        }

        SerialTeam& team_;
        int rank_;
        Offer offer_;
        std::vector<TileLink::Incoming> receive_;
        std::vector<int> released_;  ///< [member] pieces
        bool exchanged_ = false;
    };

    class Link final : public TileLink {
    public:
        Link(SerialTeam& team, int rank) : team_(team), rank_(rank) {}
        ~Link() override { team_.barrier_.arrive_and_drop(); }

        [[nodiscard]] int rank() const override { return rank_; }
        [[nodiscard]] int size() const override { return team_.members_; }
        [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                           std::span<const Incoming> receive, Name name) override {
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
    std::vector<const Offer*> offers_;  ///< [member] of the exchange that runs
};

}  // namespace vocabpipe::testing
