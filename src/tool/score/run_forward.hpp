// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/tool/launch/devices.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/launch/run_signals.hpp"
#include "src/tool/support/commands.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe::tool {

/// Arguments of a command that runs a saved model over samples; Options: ForwardOptions and more.
template <typename Options>
struct ForwardArguments {
    Options options;
    std::string device = "host";
    Launch launch{.transport = started_by_mpirun() ? "mpi" : "threads"};
};

/// Runs `score` on every rank, with the rank's device, the end of the program's signals, and
/// progress that is cleared before `score` returns.
template <typename Options, typename Score>
void run_forward(ForwardArguments<Options>& o, const Score& score) {
    if (o.launch.ranks_are_threads() && !o.launch.ranks) o.launch.ranks = 1;
    check_launch(o.launch);
    install_run_signals(o.launch.exit_signal);
    const int code = run_ranks("vocabpipe", o.launch, [&](Communicator& world) {
        PhaseProgress progress(world.rank() == 0);
        Options options = o.options;
        options.make_device = device_factory(o.device, o.launch.ranks_are_threads());
        options.ending_signal = ending_signal;
        options.progress = [&](int64_t done, int64_t all) {
            if (done == all) return progress.clear();
            progress.show("scoring", done, all);
        };
        score(world, options);
    });
    if (code != 0) throw Reported{code};
}

}  // namespace vocabpipe::tool
