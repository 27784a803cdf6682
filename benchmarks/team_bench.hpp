// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe::bench {

/// The ratio of "modelled:RATIO"; 0 for "real". UsageError with --link.
[[nodiscard]] double modelled_ratio(const std::string& link);

/// Runs `measure` on each of `ranks` threads; with 0 on the ranks of mpirun, or on two threads.
/// `measure` returns the number of errors. Returns the ranks' exit code, or ExitCode::failed if
/// there were errors.
[[nodiscard]] int run_team(const char* program, int ranks,
                           const std::function<int64_t(Communicator&)>& measure);

}  // namespace vocabpipe::bench
