// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/host.hpp"

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/exchange.hpp"

namespace vocabpipe {

namespace {

class HostTileLink final : public TileLink {
public:
    HostTileLink(Transport& transport, const WaitOptions& wait, HostLinkOptions options)
        : team_{.transport = transport, .wait = wait, .options = std::move(options)} {
        const std::vector<int>& ranks = team_.options.ranks;
        team_.self = tile_link::own_member(ranks, transport.rank(), transport.size());
        for (const int peer : ranks) {
            team_.to.push_back({transport.rank(), peer});
            team_.from.push_back({peer, transport.rank()});
        }
    }

    [[nodiscard]] int rank() const override { return team_.self; }
    [[nodiscard]] int size() const override { return static_cast<int>(team_.options.ranks.size()); }
    void poll() override {
        if (team_.current != nullptr) (void)team_.current->progress();
    }

    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name) override {
        std::string text = tile_link::text_of(name);
        tile_link::check_idle(team_.transport.rank(), text, team_.broken,
                              team_.current == nullptr ? nullptr : &team_.current->name());
        tile_link::check_parts(text, team_.self, team_.options.ranks.size(), send, receive);
        return Operation(std::make_unique<HostExchange>(team_, std::move(text), send, receive));
    }

private:
    HostTeam team_;
};

}  // namespace

std::unique_ptr<TileLink> make_host_tile_link(Transport& transport, const WaitOptions& wait,
                                              HostLinkOptions options) {
    return std::make_unique<HostTileLink>(transport, wait, std::move(options));
}

}  // namespace vocabpipe
