// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/tile_link/host.hpp"

#include "src/runtime/tile_link/exchange.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

/// Where pieces end must fit what there is: ascending, the last one at its end.
void check_ends(const std::string& name, const char* side, size_t member, size_t bytes,
                std::span<const int64_t> ends) {
    const bool ascending = std::is_sorted(ends.begin(), ends.end());
    const int64_t last = ends.empty() ? 0 : ends.back();
    const bool positive = ends.empty() || ends.front() >= 0;
    if (ascending && positive && last == static_cast<int64_t>(bytes)) return;
    throw UsageError(name + ": " + side + " member " + std::to_string(member) +
                     ": pieces must end in ascending order, the last one after all " +
                     std::to_string(bytes) + " bytes, not after " + std::to_string(last));
}

class HostTileLink final : public TileLink {
public:
    HostTileLink(Transport& transport, const WaitOptions& wait, HostLinkOptions options)
        : team_{.transport = transport, .wait = wait, .options = std::move(options)} {
        const std::vector<int>& ranks = team_.options.ranks;
        team_.self = member_of(ranks, transport.rank());
        for (size_t i = 0; i < ranks.size(); ++i) {
            const bool twice = std::count(ranks.begin(), ranks.end(), ranks[i]) > 1;
            if (ranks[i] >= 0 && ranks[i] < transport.size() && !twice) continue;
            throw UsageError("tile link: rank " + std::to_string(ranks[i]) +
                             (twice ? " is a member twice"
                                    : " does not exist; the world has " +
                                          std::to_string(transport.size()) + " ranks"));
        }
        if (team_.self == size()) {
            throw UsageError("tile link: rank " + std::to_string(transport.rank()) +
                             " is no member of its team");
        }
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
        std::string text(name.what);
        if (name.layer >= 0) text += ", layer " + std::to_string(name.layer);
        if (team_.broken) {
            throw CommunicationError("rank " + std::to_string(team_.transport.rank()) + ": " +
                                     text + ": an earlier operation of the team has failed");
        }
        if (team_.current != nullptr) {
            throw UsageError(text + ": " + team_.current->name() +
                             " has not finished; a link runs one operation at a time");
        }
        const auto members = static_cast<size_t>(size());
        if (send.size() != members || receive.size() != members) {
            throw UsageError(text + ": " + std::to_string(send.size()) + " parts to send and " +
                             std::to_string(receive.size()) + " to receive for " +
                             std::to_string(members) + " members; give one for each");
        }
        for (size_t m = 0; m < members; ++m) {
            check_ends(text, "to", m, send[m].bytes.size(), send[m].ends);
            check_ends(text, "from", m, receive[m].bytes.size(), receive[m].ends);
        }
        const auto self = static_cast<size_t>(team_.self);
        if (!std::equal(send[self].ends.begin(), send[self].ends.end(), receive[self].ends.begin(),
                        receive[self].ends.end())) {
            throw UsageError(text +
                             ": a member's part for itself must have the same pieces where "
                             "it is sent and received");
        }
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
