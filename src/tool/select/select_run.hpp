// SPDX-License-Identifier: Apache-2.0
// vocabpipe select run: its flags, and the reports of its work.
#pragma once

#include "src/select/selection_run.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/support/phase_progress.hpp"
#include "vocabpipe/select_samples.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// The values of the flags.
struct SelectRunArguments {
    std::string graph, utility;
    SelectSamplesOptions options;
    bool dry_run = false;
    std::string report;
    Launch launch{.transport = started_by_mpirun() ? "mpi" : "threads"};
};

/// What a run took, on every rank.
struct SelectRunResult {
    uint64_t used_bytes = 0;  ///< largest of all ranks
    PhaseSeconds seconds;
};

// Flags that select stats has, too.
[[nodiscard]] Flag graph_flag(SelectRunArguments& arguments);
[[nodiscard]] Flag utility_flag(SelectRunArguments& arguments);
[[nodiscard]] Flag fraction_flag(SelectRunArguments& arguments);
[[nodiscard]] Flag subset_size_flag(SelectRunArguments& arguments);
[[nodiscard]] Flag alpha_flag(SelectRunArguments& arguments);
[[nodiscard]] Flag beta_flag(SelectRunArguments& arguments);
/// For select run and select knn: bytes per rank, 0 for any number.
[[nodiscard]] Flag memory_flag(uint64_t& memory);

/// Prints memory per rank, rounds and partitions, for --dry-run.
void print_selection_plan(const SelectRunArguments& arguments, const SelectionRun& run);
/// Prints which phase decided how many samples.
void print_selection(const SelectRunArguments& arguments, const SelectionRun& run);
/// What makes the choice doubtful, and what would help: one line each.
[[nodiscard]] std::vector<std::string> selection_notes(const SelectRunArguments& arguments,
                                                       const SelectionRun& run);
/// The same with more detail as JSON, for --report.
[[nodiscard]] std::string selection_report(const SelectRunArguments& arguments,
                                           const SelectionRun& run, const SelectRunResult& result);

}  // namespace vocabpipe::tool
