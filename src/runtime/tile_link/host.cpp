// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/host.hpp"

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/exchange.hpp"
#include "src/runtime/tile_link/link_of_team.hpp"

namespace vocabpipe {

namespace {

HostTeam make_team(Transport& transport, const WaitOptions& wait, TileLinkOptions options,
                   Channel channel) {
    HostTeam team{
        .transport = transport, .wait = wait, .options = std::move(options), .channel = channel};
    team.self = tile_link::own_member(team.options.ranks, transport.rank(), transport.size());
    for (const int peer : team.options.ranks) {
        team.to.push_back({transport.rank(), peer});
        team.from.push_back({peer, transport.rank()});
    }
    return team;
}

}  // namespace

std::unique_ptr<TileLink> make_host_tile_link(Transport& transport, const WaitOptions& wait,
                                              TileLinkOptions options, Channel channel) {
    return std::make_unique<tile_link::LinkOfTeam<HostTeam, HostExchange>>(
        make_team(transport, wait, std::move(options), channel));
}

}  // namespace vocabpipe
