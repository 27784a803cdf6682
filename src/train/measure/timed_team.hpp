// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/modelled_link.hpp"
#include "src/train/measure/timed_overlap.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace vocabpipe {

/// The largest of all ranks' numbers. Collective.
[[nodiscard]] double largest_of_ranks(Communicator& world, double mine);
/// The sum of all ranks' numbers. Collective.
[[nodiscard]] int64_t sum_of_ranks(Communicator& world, int64_t mine);
/// The seconds of the slowest rank in its fastest of `rounds`, after one that warms up. Collective.
[[nodiscard]] double timed_rounds(Communicator& world, int rounds,
                                  const std::function<void()>& work);
/// `count` numbers from -1 to 1, which depend on the seed alone.
[[nodiscard]] std::vector<float> random_floats(int64_t count, int seed);
/// How many differ in a bit.
[[nodiscard]] int64_t differing(const std::vector<float>& a, const std::vector<float>& b);

/// Times what a team does: Team(world, case) has compute(), exchange(), blocking() and
/// overlapped(), all but the first after set_transport(); result(), which poison() forgets; and
/// received_bytes(). Collective.
template <typename Team>
[[nodiscard]] OverlapTiming time_team(Communicator& world, const OverlapCase& c) {
    Team team(world, c);
    OverlapTiming timing;
    timing.bytes =
        static_cast<int64_t>(largest_of_ranks(world, static_cast<double>(team.received_bytes())));
    timing.compute = timed_rounds(world, c.rounds, [&] { team.compute(); });
    Transport* transport = &world.transport();
    std::unique_ptr<Transport> modelled;
    if (c.modelled > 0) {
        modelled =
            make_modelled_link(*transport, {.bytes_per_ns = static_cast<double>(timing.bytes) /
                                                            (c.modelled * timing.compute * 1e9)});
        transport = modelled.get();
    }
    team.set_transport(*transport);
    timing.link = timed_rounds(world, c.rounds, [&] { team.exchange(); });
    timing.blocking = timed_rounds(world, c.rounds, [&] { team.blocking(); });
    const std::vector<float> expected = team.result();
    team.poison();
    timing.overlapped = timed_rounds(world, c.rounds, [&] { team.overlapped(); });
    timing.wrong = sum_of_ranks(world, differing(team.result(), expected));
    return timing;
}

}  // namespace vocabpipe
