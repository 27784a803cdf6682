// SPDX-License-Identifier: Apache-2.0
// Broadcast down a binary tree: rank (r - 1) / 2 says to r that a tile is there, and r pulls it and
// says so to ranks 2 r + 1 and 2 r + 2, while the next one is on its way.
//
//     tree_broadcast 4              four threads
//     mpirun -np 4 tree_broadcast   four processes
#include "vocabpipe/prove_tiles.hpp"
#include "vocabpipe/tile_operation.hpp"
#include "vocabpipe/world.hpp"

#include <cstdio>
#include <cstdlib>

using namespace vocabpipe;

int main(int argc, char** argv) {
    World world = argc > 1 ? World::threads(std::atoi(argv[1])) : World::mpi();
    return world.run_program("tree_broadcast", [](Communicator& ranks) {
        const int size = ranks.size();
        // f_S, f_R and f_C as formulas: 32 tiles of 8 rows, all of rank 0, each with its signal.
        const TileFunctions functions{.tiles = 32,
                                      .shape =
                                          [](int64_t t) {
                                              return TileArea{{8 * t, 8 * t + 8}, {0, 100}};
                                          },
                                      .member = [](int64_t) { return 0; },
                                      .signal = [](int64_t t) { return int(t); }};
        std::vector<std::vector<TileStep>> steps(static_cast<size_t>(size));
        for (int rank = 0; rank < size; ++rank) {
            for (int64_t tile = 0; tile < functions.tiles; ++tile) {
                auto& mine = steps[static_cast<size_t>(rank)];
                if (rank > 0) mine.push_back({TileAction::wait, 0, tile});
                for (const int child : {2 * rank + 1, 2 * rank + 2}) {
                    if (child < size) mine.push_back({TileAction::make, 0, tile, child});
                }
            }
        }
        prove_tiles(std::vector<ProvedOperation>{{"tree broadcast of x", functions}}, steps);

        const auto memory = open_symmetric_memory(ranks, {.bytes = 25600, .signals = 32});
        const auto value = [](size_t i) { return std::byte(i * 7 % 251); };
        for (size_t i = 0; i < 25600 && ranks.rank() == 0; ++i) memory->bytes()[i] = value(i);
        TileOperation x(*memory, {"tree broadcast of x", functions, 100});
        for (const TileStep& step : steps[size_t(ranks.rank())]) {
            if (step.action == TileAction::wait) {
                x.wait(step.tile);
                x.pull(step.tile, (ranks.rank() - 1) / 2);
            } else {
                x.notify(step.tile, step.member);
            }
        }
        memory->close();
        size_t wrong = 0;
        for (size_t i = 0; i < 25600; ++i) wrong += memory->bytes()[i] != value(i);
        ranks.agree([&] {
            if (wrong > 0) throw Error(ExitCode::failed, "bytes are wrong");
        });
        if (ranks.rank() == 0) std::printf("%d ranks have %ld tiles\n", size, functions.tiles);
    });
}
