// SPDX-License-Identifier: Apache-2.0
// Tiles of matrices in symmetric memory, and that programs end which were proved. One source, four
// programs: see test_world.hpp.
#include "vocabpipe/tile_operation.hpp"
#include "tests/support/number_of_cases.hpp"
#include "tests/tiles/on_every_rank.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/prove_tiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace vocabpipe {
namespace {

using testing::TestWorld;

/// Ranks (under mpirun it is what mpirun started), and whether they use messages alone.
class TileOperationRanks : public ::testing::TestWithParam<std::tuple<int, bool>> {
protected:
    static void on_every_rank(const std::function<void(Communicator&)>& body) {
        testing::on_every_rank(TestWorld(std::get<0>(GetParam()), {.timeout_seconds = 10}),
                               std::get<1>(GetParam()), body);
    }
};

std::byte value(int64_t i, int round) {
    return static_cast<std::byte>(i * 7 + 31 * round + 1);
}

TEST_P(TileOperationRanks, GathersTilesOfRowsAndColumnsInSeveralRounds) {
    on_every_rank([](Communicator& c) {
        for (int shared = 0; shared < 4; ++shared) {
            const TileGrid grid{.rows = 13 * c.size() - 3,
                                .columns = 29,
                                .tile_rows = 5,
                                .tile_columns = 11,
                                .members = c.size(),
                                .signals_per_member = shared};
            const TileFunctions functions = functions_of(grid);
            const auto memory = open_symmetric_memory(
                c, {.bytes = 40 + 2 * grid.rows * grid.columns,
                    .signals = 3 + static_cast<int>(functions.tiles) + 4 * c.size()});
            TileOperation x(*memory, {.name = "gather of x",
                                      .functions = functions,
                                      .columns = grid.columns,
                                      .element_bytes = 2,
                                      .offset = 40,
                                      .first_signal = 3});
            const auto matrix = memory->bytes().subspan(40);
            const auto each = [&](const TileArea& area, const auto& body) {
                for (int64_t row = area.rows.first; row < area.rows.end; ++row) {
                    for (int64_t k = 2 * area.columns.first; k < 2 * area.columns.end; ++k) {
                        body(row * grid.columns * 2 + k);
                    }
                }
            };
            for (int round = 0; round < 3; ++round) {
                for (int64_t tile = 0; tile < functions.tiles; ++tile) {
                    if (functions.member(tile) != c.rank()) continue;
                    each(functions.shape(tile),
                         [&](int64_t i) { matrix[static_cast<size_t>(i)] = value(i, round); });
                    for (int m = 0; m < c.size(); ++m) {
                        if (m != c.rank()) x.push(tile, m);
                    }
                    x.notify(tile);  // here
                }
                const TileArea part{{3, 3 + 7 * c.size()}, {8, 12}};
                for (const int64_t tile : tiles_meeting(functions, part)) x.wait(tile);
                each(part, [&](int64_t i) {
                    EXPECT_EQ(matrix[static_cast<size_t>(i)], value(i, round));
                });
                for (int64_t tile = 0; tile < functions.tiles; ++tile) {
                    x.wait(tile);
                    EXPECT_TRUE(x.test(tile));
                }
                memory->barrier();  // all have read before the next round writes
                x.next_round();
                if (functions.tiles > 0) {
                    EXPECT_FALSE(x.test(0));
                }
                memory->barrier();
            }
            EXPECT_THROW(x.wait(functions.tiles), UsageError);
            EXPECT_THROW(x.push(-1, 0), UsageError);
            memory->close();
        }
    });
}

/// Steps of random ranks on two operations, the second with tiles that share a signal.
struct Program {
    std::vector<ProvedOperation> operations;
    std::vector<std::vector<TileStep>> steps;

    Program(std::mt19937& random, int ranks) : steps(static_cast<size_t>(ranks)) {
        for (const int shared : {0, 1}) {
            const TileGrid grid{.rows = 4,
                                .columns = 40,
                                .tile_rows = 2,
                                .tile_columns = 20,
                                .signals_per_member = shared};
            operations.push_back({"operation", functions_of(grid)});
        }
        const auto any = [&] { return random() % static_cast<unsigned>(ranks); };
        for (int operation = 0; operation < 2; ++operation) {
            for (int64_t tile = 0; tile < 4; ++tile) {
                for (int at = 0; at < ranks; ++at) {
                    if (random() % 8 == 0) continue;
                    steps[any()].push_back({TileAction::make, operation, tile, at});
                }
            }
        }
        for (auto left = random() % 8; left > 0; --left) {
            steps[any()].push_back({TileAction::wait, static_cast<int>(random() % 2),
                                    static_cast<int64_t>(random() % 4)});
        }
        for (auto& mine : steps) std::shuffle(mine.begin(), mine.end(), random);
    }
    [[nodiscard]] bool is_proved() const {
        try {
            prove_tiles(operations, steps);
        } catch (const UsageError&) {
            return false;
        }
        return true;
    }
    [[nodiscard]] bool makes(int rank, const TileStep& step) const {
        const auto& mine = steps[static_cast<size_t>(rank)];
        return std::any_of(mine.begin(), mine.end(), [&](const TileStep& other) {
            return other.action == TileAction::make && other.operation == step.operation &&
                   other.tile == step.tile;
        });
    }
};

void run_program(Communicator& c, const Program& program, std::mt19937& random) {
    const auto memory = open_symmetric_memory(c, {.bytes = 320, .signals = 8});
    std::vector<std::unique_ptr<TileOperation>> operations;
    for (int i = 0; i < 2; ++i) {
        const ProvedOperation& proved = program.operations[static_cast<size_t>(i)];
        operations.push_back(std::make_unique<TileOperation>(
            *memory, TileOperationOptions{.name = proved.name,
                                          .functions = proved.functions,
                                          .columns = 40,
                                          .offset = 160 * i,
                                          .first_signal = 4 * i}));
    }
    // A maker's tile is there from the beginning; others get it unless they make it, too.
    const auto first_byte = [&](const TileStep& step) {
        const TileArea area =
            program.operations[static_cast<size_t>(step.operation)].functions.shape(step.tile);
        return static_cast<size_t>(160 * step.operation + area.rows.first * 40 +
                                   area.columns.first);
    };
    for (const TileStep& step : program.steps[static_cast<size_t>(c.rank())]) {
        if (step.action != TileAction::make) continue;
        memory->bytes()[first_byte(step)] = value(step.tile, step.operation);
    }
    for (const TileStep& step : program.steps[static_cast<size_t>(c.rank())]) {
        if (random() % 5 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
        }
        TileOperation& operation = *operations[static_cast<size_t>(step.operation)];
        if (step.action == TileAction::wait) {
            operation.wait(step.tile);
            EXPECT_EQ(memory->bytes()[first_byte(step)], value(step.tile, step.operation));
        } else if (program.makes(step.member, step)) {
            operation.notify(step.tile, step.member);
        } else {
            operation.push(step.tile, step.member);
        }
    }
    memory->close();
}

TEST_P(TileOperationRanks, EndIfTheyWereProvedWhateverTheDelays) {
    const int programs = std::max(1, testing::number_of_cases(2000) / 10);
    on_every_rank([&](Communicator& c) {
        std::mt19937 common(5);
        std::mt19937 random(static_cast<unsigned>(c.rank()));
        for (int ran = 0; ran < programs;) {
            const Program program(common, c.size());
            if (!program.is_proved()) continue;
            run_program(c, program, random);
            ++ran;
        }
        c.barrier();
    });
}

#ifdef VOCABPIPE_TEST_MPI
INSTANTIATE_TEST_SUITE_P(Mpi, TileOperationRanks,
                         ::testing::Combine(::testing::Values(0), ::testing::Bool()));
#else
INSTANTIATE_TEST_SUITE_P(Threads, TileOperationRanks,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4), ::testing::Bool()),
                         [](const auto& info) {
                             return std::to_string(std::get<0>(info.param)) +
                                    (std::get<1>(info.param) ? "Messages" : "");
                         });
#endif

}  // namespace
}  // namespace vocabpipe
