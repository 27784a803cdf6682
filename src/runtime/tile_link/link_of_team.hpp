// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/tile_link/checks.hpp"
#include "vocabpipe/tile_link.hpp"

#include <memory>
#include <utility>

namespace vocabpipe::tile_link {

/// One rank's end of a team: checks arguments and starts operations. Team: the state that
/// operations of the link share, with `transport`, `options`, `self`, `current` and `broken`.
/// OneExchange: an operation, with name() and progress().
template <class Team, class OneExchange>
class LinkOfTeam final : public TileLink {
public:
    explicit LinkOfTeam(Team team) : team_(std::move(team)) {}

    [[nodiscard]] int rank() const override { return team_.self; }
    [[nodiscard]] int size() const override { return static_cast<int>(team_.options.ranks.size()); }
    void poll() override {
        if (team_.current != nullptr) (void)team_.current->progress();
    }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name,
                                       Order order) override {
        std::string text = text_of(name);
        check_idle(team_.transport.rank(), text, team_.broken,
                   team_.current == nullptr ? nullptr : &team_.current->name());
        check_parts(text, team_.self, team_.options.ranks.size(), send, receive);
        return Operation(
            std::make_unique<OneExchange>(team_, std::move(text), send, receive, order));
    }

private:
    Team team_;
};

}  // namespace vocabpipe::tile_link
