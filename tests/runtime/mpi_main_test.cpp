// SPDX-License-Identifier: Apache-2.0
// Tests that go wrong on purpose; tests/faults/mpi_main_test.cpp runs them under mpirun and looks
// at what becomes of it. Disabled, so that nobody else does.
#include "vocabpipe/world.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace vocabpipe {
namespace {

int rank_of_this_process() {
    int rank = 0;
    World::mpi().run([&](Communicator& c) { rank = c.rank(); });
    return rank;
}

TEST(OnPurpose, DISABLED_FailsOnRankOneOnly) {
    EXPECT_NE(rank_of_this_process(), 1) << "first line\nsecond line";
}

TEST(OnPurpose, DISABLED_HangsOnRankOneOnly) {
    if (rank_of_this_process() == 1) std::this_thread::sleep_for(std::chrono::minutes(5));
}

TEST(OnPurpose, DISABLED_PassesEverywhere) {
    World::mpi().run([](Communicator& c) { c.barrier(); });
}

}  // namespace
}  // namespace vocabpipe
