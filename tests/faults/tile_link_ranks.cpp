// SPDX-License-Identifier: Apache-2.0
// A team that all-gathers by pieces under mpirun, for tests that kill a member.
//
//     tile_link_ranks ON_HOST VICTIM
//
// Every rank prints "rank R pid P". In layer 5 VICTIM releases the first two of its four pieces,
// prints "VICTIM stands" and stays there, as a rank does whose pass takes long.
#include "src/runtime/tile_link/host.hpp"
#include "src/runtime/wait.hpp"
#include "tests/faults/run_with_victim.hpp"

#include <cstdio>
#include <numeric>
#include <vector>

namespace {

using namespace vocabpipe;

constexpr int kLayer = 5;
constexpr int kPieces = 4;
constexpr int kReleased = 2;
constexpr int64_t kPieceBytes = 300'000;  // beyond what any transport sends before its receive

void gather_for_ever(Communicator& world, int victim) {
    std::vector<int> team(static_cast<size_t>(world.size()));
    std::iota(team.begin(), team.end(), 0);
    const auto link =
        make_host_tile_link(world.transport(), world.wait_options(), {.ranks = std::move(team)});
    std::vector<int64_t> ends;
    for (int i = 1; i <= kPieces; ++i) ends.push_back(i * kPieceBytes);
    const std::vector<std::byte> out(static_cast<size_t>(ends.back()));
    std::vector<std::vector<std::byte>> in(static_cast<size_t>(world.size()), out);
    const std::vector<TileLink::Outgoing> send(in.size(), {out, ends});
    std::vector<TileLink::Incoming> receive;
    for (auto& part : in) receive.push_back({part, ends});
    for (int layer = 0;; ++layer) {
        TileLink::Operation op = link->all_to_all(send, receive, {"all-gather of x", layer});
        for (int piece = 1; piece <= kPieces; ++piece) {
            if (layer == kLayer && world.rank() == victim && piece > kReleased) {
                for (int member = 0; member < world.size(); ++member) op.wait(member, 0);
                std::printf("%d stands\n", victim);
                std::fflush(stdout);
                const auto stuck = [&] { return link->poll(), ending_signal() != 0; };
                (void)poll_until(world.wait_options(), stuck);
                return;
            }
            for (int member = 0; member < world.size(); ++member) op.release(member, piece);
        }
        if (layer == kLayer) {  // nothing that was released is still on its way
            op.wait(victim, kReleased);
            std::printf("rank %d has what was released\n", world.rank());
            std::fflush(stdout);
        }
        op.finish();
    }
}

}  // namespace

int main(int argc, char** argv) {
    return testing::run_with_victim("tile_link_ranks", argc, argv, gather_for_ever);
}
