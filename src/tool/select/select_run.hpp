// SPDX-License-Identifier: Apache-2.0
// vocabpipe select run: its flags, and the reports of its work.
#pragma once

#include "src/select/select_context.hpp"
#include "src/select/selection.hpp"
#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/support/phase_progress.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe::tool {

/// The values of the flags.
struct SelectRunArguments {
    std::string graph, utility, output;
    std::optional<Fraction> fraction;
    std::optional<int64_t> subset_size;
    int64_t alpha = 9, beta = 1;  // the paper's 0.9 and 0.1
    BoundingRule bounding{};
    int64_t partitions = 1;
    int64_t rounds = 8;  // the paper's figures change little beyond
    bool adaptive = false;
    uint64_t seed = 1;
    int64_t certificate_steps = SelectionOptions{}.certificate_steps;
    uint64_t memory = 0;  // 0: not checked
    bool dry_run = false;
    std::string report, state, scratch;
    Launch launch{.transport = started_by_mpirun() ? "mpi" : "threads"};

    /// Flag and value of everything besides the files that decides the result.
    [[nodiscard]] std::map<std::string, std::string> deciding(int64_t k) const;
};

/// The result of a run, on every rank.
struct SelectRunResult {
    int64_t k = 0;
    GraphSizes sizes;
    MemoryPlan plan;
    uint64_t used_bytes = 0;  ///< largest of all ranks
    const Selection* selection = nullptr;
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

/// The number of samples to choose out of n. UsageError if n is smaller.
[[nodiscard]] int64_t subset_size_of(const SelectRunArguments& arguments, int64_t n);

/// Prints memory per rank, rounds and partitions, for --dry-run.
void print_selection_plan(const SelectRunArguments& arguments, const SelectRunResult& result,
                          int ranks);
/// Prints which phase decided how many samples.
void print_selection(const SelectRunArguments& arguments, const SelectRunResult& result);
/// What makes the choice doubtful, and what would help: one line each.
[[nodiscard]] std::vector<std::string> selection_notes(const SelectRunArguments& arguments,
                                                       const SelectRunResult& result);
/// The same with more detail as JSON, for --report.
[[nodiscard]] std::string selection_report(const SelectRunArguments& arguments,
                                           const SelectRunResult& result,
                                           const SelectContext& context);

}  // namespace vocabpipe::tool
