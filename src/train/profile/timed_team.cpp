// SPDX-License-Identifier: Apache-2.0
#include "src/train/profile/timed_team.hpp"

#include "src/runtime/gathered.hpp"
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/transport/modelled_link.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>

namespace vocabpipe {

namespace {

using Clock = std::chrono::steady_clock;

std::vector<int> all_ranks(const Communicator& world) {
    std::vector<int> everyone(static_cast<size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    return everyone;
}

void until_idle(const Communicator& world, Device& device) {
    const IdleWait::Verdict verdict =
        poll_until(world.wait_options(), [&] { return device.idle(); });
    if (verdict == IdleWait::Verdict::go_on) return;
    throw CommunicationError("rank " + std::to_string(world.rank()) +
                             ": its device did not end in time");
}

}  // namespace

std::unique_ptr<TileLink> link_of_all(Communicator& world, Device& device, Transport& transport) {
    return device.open_tile_link(transport, world.wait_options(),
                                 {.ranks = all_ranks(world), .poll = {}}, Axis::tensor);
}

ModelledTeamLink::ModelledTeamLink(Communicator& world, int64_t bytes, double seconds)
    : transport_(make_modelled_link(
          world.transport(), {.bytes_per_ns = static_cast<double>(bytes) / (seconds * 1e9)})),
      link_(make_host_tile_link(*transport_, world.wait_options(),
                                {.ranks = all_ranks(world), .poll = {}})) {}

double largest_of_ranks(Communicator& world, double mine) {
    return std::ranges::max(gathered_values(world, mine));
}

int64_t sum_of_ranks(Communicator& world, int64_t mine) {
    int64_t sum = 0;
    for (const int64_t number : gathered_values(world, mine)) sum += number;
    return sum;
}

double timed_rounds(Communicator& world, Device& device, int rounds,
                    const std::function<void()>& work) {
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round <= rounds; ++round) {
        world.barrier();
        const auto begin = Clock::now();
        work();
        until_idle(world, device);
        const double seconds =
            largest_of_ranks(world, std::chrono::duration<double>(Clock::now() - begin).count());
        if (round > 0) best = std::min(best, seconds);  // the first one warms up
    }
    return best;
}

std::vector<float> random_floats(int64_t count, int seed) {
    std::minstd_rand random(static_cast<unsigned>(seed + 1));
    std::uniform_real_distribution<float> numbers(-1, 1);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = numbers(random);
    return values;
}

int64_t differing(const std::vector<float>& a, const std::vector<float>& b) {
    int64_t count = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        count += std::memcmp(&a[i], &b[i], sizeof a[i]) != 0 ? 1 : 0;
    }
    return count;
}

}  // namespace vocabpipe
