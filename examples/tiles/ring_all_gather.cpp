// SPDX-License-Identifier: Apache-2.0
// All-gather on a ring with relay: every rank owns some rows of a matrix, and pushes to its right
// neighbour first its own tiles, then those that came from the left, each as soon as it is there.
//
//     ring_all_gather 4              four threads
//     mpirun -np 4 ring_all_gather   four processes
#include "vocabpipe/prove_tiles.hpp"
#include "vocabpipe/tile_operation.hpp"
#include "vocabpipe/world.hpp"

#include <cstdio>
#include <cstdlib>

using namespace vocabpipe;

int main(int argc, char** argv) {
    World world = argc > 1 ? World::threads(std::atoi(argv[1])) : World::mpi();
    return world.run_program("ring_all_gather", [](Communicator& ranks) {
        const int size = ranks.size();
        const TileGrid grid{.rows = 40L * size,
                            .columns = 96,
                            .tile_rows = 16,
                            .tile_columns = 64,
                            .members = size};
        const TileFunctions functions = functions_of(grid);
        // The steps of every rank, as data: in hop h it pushes the tiles of rank - h.
        std::vector<std::vector<TileStep>> steps(static_cast<size_t>(size));
        for (int rank = 0; rank < size; ++rank) {
            for (int hop = 0; hop < size; ++hop) {
                for (int64_t tile = 0; tile < functions.tiles; ++tile) {
                    if (functions.member(tile) != (rank - hop + size) % size) continue;
                    auto& mine = steps[static_cast<size_t>(rank)];
                    if (hop > 0) mine.push_back({TileAction::wait, 0, tile});
                    if (hop < size - 1)
                        mine.push_back({TileAction::make, 0, tile, (rank + 1) % size});
                }
            }
        }
        prove_tiles(std::vector<ProvedOperation>{{"ring all-gather of x", functions}}, steps);

        const auto memory = open_symmetric_memory(
            ranks, {.bytes = grid.rows * grid.columns, .signals = int(functions.tiles)});
        const auto value = [](size_t i) { return std::byte(i * 7 % 251); };
        const size_t part = memory->bytes().size() / size_t(size);
        const size_t first = part * size_t(ranks.rank());
        for (size_t i = first; i < first + part; ++i) memory->bytes()[i] = value(i);
        TileOperation x(*memory, {"ring all-gather of x", functions, grid.columns});
        for (const TileStep& step : steps[size_t(ranks.rank())]) {
            if (step.action == TileAction::wait) x.wait(step.tile);
            if (step.action == TileAction::make) x.push(step.tile, step.member);
        }
        size_t wrong = 0;
        for (size_t i = 0; i < memory->bytes().size(); ++i) wrong += memory->bytes()[i] != value(i);
        memory->close();
        ranks.agree([&] {
            if (wrong > 0) throw Error(ExitCode::failed, "bytes are wrong");
        });
        if (ranks.rank() == 0) std::printf("%d ranks have %ld tiles\n", size, functions.tiles);
    });
}
