// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/streams.hpp"

#include "src/runtime/tile_link/checks.hpp"
#include "src/runtime/tile_link/link_of_team.hpp"
#include "src/runtime/tile_link/stream_exchange.hpp"
#include "vocabpipe/error.hpp"

#include <utility>

namespace vocabpipe {

namespace {

LinkTransport& steps_of(Transport& transport) {
    auto* const steps = dynamic_cast<LinkTransport*>(&transport);
    if (steps != nullptr) return *steps;
    throw UsageError("tile link: the transport moves no memory of GPUs");
}

/// A stream of high priority, as for the other communication lanes, because other ranks wait for
/// its steps.
cuda::Stream make_link_stream() {
    int least = 0;
    int greatest = 0;
    cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                "cudaDeviceGetStreamPriorityRange");
    return cuda::make_stream(greatest);
}

StreamTeam make_team(Transport& transport, const WaitOptions& wait, cudaStream_t pass,
                     TileLinkOptions options, Channel channel) {
    StreamTeam team{.transport = transport,
                    .steps = steps_of(transport),
                    .wait = wait,
                    .pass = pass,
                    .options = std::move(options),
                    .channel = channel};
    team.self = tile_link::own_member(team.options.ranks, transport.rank(), transport.size());
    team.stream = make_link_stream();
    team.number = team.steps.join({team.options.ranks, team.channel, team.stream.get()});
    return team;
}

}  // namespace

std::unique_ptr<TileLink> make_stream_tile_link(Transport& transport, const WaitOptions& wait,
                                                cudaStream_t pass, TileLinkOptions options,
                                                Channel channel) {
    return std::make_unique<tile_link::LinkOfTeam<StreamTeam, StreamExchange>>(
        make_team(transport, wait, pass, std::move(options), channel));
}

void join_no_tile_link(Transport& transport) {
    (void)steps_of(transport).join({});
}

}  // namespace vocabpipe
