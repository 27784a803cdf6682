// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/tool/schedule/figure_costs.hpp"
#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule_file.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe::tool {

/// Flags about a schedule, of the commands that simulate; 0 means "not given".
struct ScheduleFlags {
    int pp = 0;
    int microbatches = 0;
    RuleOptions rule;
    std::optional<VocabMode> vocab_mode;       // none: VocabMode::none, or what a file has
    std::optional<Recompute> recompute;        // none: Recompute::none, or full for a file with R
    CsvDialect dialect = CsvDialect::current;  // of a PyTorch CSV
    std::string costs;       // FigureOptions::costs, or a profile; empty: FLOPs of figured_model()
    std::string pass_times;  // a file; empty: none
    FigureOptions figures;   // but those that follow from the two before
    std::string lengths;     // LENGTH:MICROBATCHES,...; empty: all have FigureOptions::seq_length
    bool no_optimizer_barrier = false;
    int cores = 0;
    std::optional<CommunicationOrder> communication_order;  // none: the profile's, or lanes
    std::string receive_ahead = "auto";
    std::string tile_pieces = "auto";
    std::string overlap_table;  // a file; empty: none
    bool free_vocabulary_collectives = false;
};

/// The positional argument for a schedule.
[[nodiscard]] Flag schedule_argument(
    std::string& name, const std::string& help = "Name of a schedule, or a .csv or .json file");
/// The rows of these flags.
[[nodiscard]] FlagGroup schedule_source_flags(ScheduleFlags& flags);
/// Further rows, for commands that run programs and not only show lists.
[[nodiscard]] FlagGroup lowering_flags(ScheduleFlags& flags);

/// Parses NAME, FILE, or NAME,flag=value,... with flags of its own, such as
/// "1f1b,vocab-mode=one_barrier", into `flags`, and returns the name. UsageError.
[[nodiscard]] std::string take_own_flags(const std::string& text, ScheduleFlags& flags);

}  // namespace vocabpipe::tool
