// SPDX-License-Identifier: Apache-2.0
// A team that passes tiles round a ring under mpirun, for tests that kill a member.
//
//     symmetric_memory_ranks ON_HOST VICTIM
//
// Every rank prints "rank R pid P". In round 5 VICTIM pushes nothing, prints "VICTIM stands" and
// stays there, as a rank does whose pass takes long.
#include "src/runtime/wait.hpp"
#include "tests/faults/run_with_victim.hpp"
#include "vocabpipe/symmetric_memory.hpp"

#include <cstdio>
#include <vector>

namespace {

using namespace vocabpipe;

constexpr uint64_t kRound = 5;
constexpr int64_t kTileBytes = 300'000;

void go_round_for_ever(Communicator& world, int victim) {
    const auto memory = open_symmetric_memory(world, {.bytes = 2 * kTileBytes, .signals = 1});
    const int left = (world.rank() + world.size() - 1) % world.size();
    const std::vector<std::byte> tile(static_cast<size_t>(kTileBytes));
    for (uint64_t round = 1;; ++round) {
        if (round == kRound && world.rank() == victim) {
            std::printf("%d stands\n", victim);
            std::fflush(stdout);
            const auto stuck = [&] { return memory->poll(), ending_signal() != 0; };
            (void)poll_until(world.wait_options(), stuck);
            return;
        }
        const auto offset = static_cast<int64_t>(round % 2) * kTileBytes;
        memory->push((world.rank() + 1) % world.size(), tile, offset, 0);
        memory->wait(0, round, {"ring of x", static_cast<int64_t>(round), left});
    }
}

}  // namespace

int main(int argc, char** argv) {
    return testing::run_with_victim("symmetric_memory_ranks", argc, argv, go_round_for_ever);
}
