// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/world.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace vocabpipe::bench {

/// The ratio of "modelled:RATIO"; 0 for "real". Throws UsageError, which names --link.
[[nodiscard]] double modelled_ratio(const std::string& link);

/// `measure` on each of `ranks` threads, or, with 0, of the ranks of mpirun, or of two threads;
/// what it returns is what was wrong. The exit code: that of the ranks, or ExitCode::failed for
/// anything wrong.
[[nodiscard]] int run_team(const char* program, int ranks,
                           const std::function<int64_t(Communicator&)>& measure);

}  // namespace vocabpipe::bench
