// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/select/selection.hpp"
#include "tests/select/select_problem.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe::testing {

/// How run_selection() runs.
struct RunOptions {
    int ranks = 2;
    std::string state;   ///< folder to save to; empty: none
    int end_after = -1;  ///< the phase, or saved state, at whose end Ended is thrown
    uint64_t seed = 1;
    uint64_t memory = 0;  ///< 0: no limit
    int64_t block = 0;    ///< samples of a block of the state; 0: all in memory
};

struct Ended {};

/// What a selection found.
struct SelectionResult {
    bool resumed = false;
    int64_t objective = 0;
    std::optional<int64_t> bound;  ///< of the certificate
    SelectionProgress progress;
};

/// Runs a Selection of `problem`, whose graph is the file FOLDERgraph, on threads, and writes its
/// subset to `output`. Checks its objective and its memory. It puts together the parts that
/// select_samples() does, beside it: so tests choose blocks, and have small problems send and write
/// many of them.
SelectionResult run_selection(const std::string& folder, const SelectProblem& problem,
                              const SelectionOptions& options, const std::string& output,
                              const RunOptions& run = {});

}  // namespace vocabpipe::testing
