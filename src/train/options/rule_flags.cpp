// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/rule_flags.hpp"

#include <cstdint>

namespace vocabpipe {

std::vector<Flag> rule_flags(RuleOptions& rule) {
    return {
        {.names = "--chunks,--num-virtual-stages-per-pipeline-rank",
         .value = &rule.chunks,
         .help = "Stages per rank (v)",
         .unit = "STAGES",
         .range = between(0, UINT16_MAX),
         .unset = "the schedule's own"},
        {.names = "--group-size,--microbatch-group-size-per-virtual-pipeline-stage",
         .value = &rule.group_size,
         .help = "Microbatches that a stage of an interleaved schedule runs in a row",
         .unit = "MICROBATCHES",
         .range = between(0, INT32_MAX),
         .unset = "the number of ranks"},
        {.names = "--memory-limit,--schedule-memory-limit",
         .value = &rule.memory_limit,
         .help = "Maximum number of activations alive on a rank, in chunks, for schedules that "
                 "trade memory for bubble",
         .unit = "CHUNKS",
         .range = between(0, INT32_MAX),
         .unset = "the schedule's own"},
        {.names = "--warm-up-depth",
         .value = &rule.warm_up_depth,
         .help = "How many more warm-up microbatches a 1F1B stage has than the next stage",
         .unit = "MICROBATCHES",
         .range = between(0, INT32_MAX),
         .unset = "1; 2 for eager-1f1b and --overlap-pairs"},
        {.names = "--overlap-pairs,--overlap-moe-expert-parallel-comm",
         .value = &rule.overlap_pairs,
         .help = "Pair each forward with the backward beside it, so that on hosts one computes "
                 "while the other waits for tensor, context or expert ranks"},
        {.names = "--search-moves",
         .value = &rule.search_moves,
         .help = "Moves of a local search for a shorter step under the costs; 0: keep the "
                 "schedule's own order",
         .unit = "N",
         .range = between(0, 0x1p40)},
        {.names = "--broadcast-margin",
         .value = &rule.broadcast_margin,
         .help = "Part of B to reserve for the broadcast of X, in the unit of the costs F,B "
                 "(nanoseconds where they are measured)",
         .unit = "COST",
         .range = between(0, kMostCost)},
    };
}

}  // namespace vocabpipe
