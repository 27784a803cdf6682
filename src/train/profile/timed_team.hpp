// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"
#include "src/train/profile/timed_overlap.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/tile_link.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace vocabpipe {

/// The maximum over all ranks. Collective.
[[nodiscard]] double largest_of_ranks(Communicator& world, double mine);
/// The sum over all ranks. Collective.
[[nodiscard]] int64_t sum_of_ranks(Communicator& world, int64_t mine);
/// Seconds of the fastest of `rounds` rounds, after one of warm-up; a round ends when the slowest
/// rank's device is done. Collective. CommunicationError if a device does not finish.
[[nodiscard]] double timed_rounds(Communicator& world, Device& device, int rounds,
                                  const std::function<void()>& work);
/// `count` numbers from -1 to 1, determined by the seed.
[[nodiscard]] std::vector<float> random_floats(int64_t count, int seed);
/// The number of elements that differ in a bit.
[[nodiscard]] int64_t differing(const std::vector<float>& a, const std::vector<float>& b);

/// A link of all ranks on hosts, with a transport that takes `seconds` for `bytes`.
class ModelledTeamLink {
public:
    ModelledTeamLink(Communicator& world, int64_t bytes, double seconds);
    [[nodiscard]] TileLink& link() { return *link_; }

private:
    std::unique_ptr<Transport> transport_;
    std::unique_ptr<TileLink> link_;
};

/// Times a team. Team(world, device, case) has compute(), exchange(), blocking() and overlapped(),
/// all but the first to be called after use(link); result(), which poison() overwrites; and
/// received_bytes(). Collective.
template <typename Team>
[[nodiscard]] OverlapTiming time_team(Communicator& world, Device& device, TileLink& link,
                                      const OverlapCase& c) {
    Team team(world, device, c);
    const auto timed = [&](void (Team::*work)()) {
        return timed_rounds(world, device, c.rounds, [&] { (team.*work)(); });
    };
    OverlapTiming timing;
    timing.bytes =
        static_cast<int64_t>(largest_of_ranks(world, static_cast<double>(team.received_bytes())));
    timing.compute = timed(&Team::compute);
    std::optional<ModelledTeamLink> modelled;
    if (c.modelled > 0) modelled.emplace(world, timing.bytes, c.modelled * timing.compute);
    team.use(modelled ? modelled->link() : link);
    timing.link = timed(&Team::exchange);
    timing.blocking = timed(&Team::blocking);
    const std::vector<float> expected = team.result();
    team.poison();
    timing.overlapped = timed(&Team::overlapped);
    timing.wrong = sum_of_ranks(world, differing(team.result(), expected));
    return timing;
}

}  // namespace vocabpipe
