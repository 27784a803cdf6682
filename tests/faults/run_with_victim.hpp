// SPDX-License-Identifier: Apache-2.0
// The main function of programs in which a test kills a rank.
#pragma once

#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "vocabpipe/world.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace vocabpipe::testing {

/// Runs work(world, VICTIM) on the ranks of mpirun, of a program with the arguments ON_HOST VICTIM,
/// after every rank has printed "rank R pid P". Returns the exit code.
template <typename Work>
int run_with_victim(const char* program, int argc, char** argv, const Work& work) {
    if (argc != 3) return 2;
    install_run_signals();
    tool::Launch launch{.on_host = argv[1]};
    const int victim = std::atoi(argv[2]);
    return tool::run_ranks(program, launch, [&](Communicator& world) {
        std::printf("rank %d pid %d\n", world.rank(), static_cast<int>(::getpid()));
        std::fflush(stdout);
        work(world, victim);
    });
}

}  // namespace vocabpipe::testing
