// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/streams.hpp"

#include "src/runtime/tile_link/checks.hpp"
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

/// Other ranks wait for its steps, as for those of the other lanes of communication.
cuda::Stream make_link_stream() {
    int least = 0;
    int greatest = 0;
    cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                "cudaDeviceGetStreamPriorityRange");
    return cuda::make_stream(greatest);
}

class StreamTileLink final : public TileLink {
public:
    StreamTileLink(Transport& transport, const WaitOptions& wait, StreamLinkOptions options)
        : team_{.transport = transport,
                .steps = steps_of(transport),
                .wait = wait,
                .options = std::move(options)} {
        team_.self = tile_link::own_member(team_.options.ranks, transport.rank(), transport.size());
        team_.stream = make_link_stream();
        team_.number =
            team_.steps.join({team_.options.ranks, team_.options.channel, team_.stream.get()});
    }

    [[nodiscard]] int rank() const override { return team_.self; }
    [[nodiscard]] int size() const override { return static_cast<int>(team_.options.ranks.size()); }
    void poll() override {
        if (team_.current != nullptr) (void)team_.current->advance();
    }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name) override {
        std::string text = tile_link::text_of(name);
        tile_link::check_idle(team_.transport.rank(), text, team_.broken,
                              team_.current == nullptr ? nullptr : &team_.current->name());
        tile_link::check_parts(text, team_.self, team_.options.ranks.size(), send, receive);
        return Operation(std::make_unique<StreamExchange>(team_, std::move(text), send, receive));
    }

private:
    StreamTeam team_;
};

}  // namespace

std::unique_ptr<TileLink> make_stream_tile_link(Transport& transport, const WaitOptions& wait,
                                                StreamLinkOptions options) {
    return std::make_unique<StreamTileLink>(transport, wait, std::move(options));
}

void join_no_tile_link(Transport& transport) {
    (void)steps_of(transport).join({});
}

}  // namespace vocabpipe
