// SPDX-License-Identifier: Apache-2.0
#include "src/tool/schedule/schedule_flags.hpp"

#include "src/support/names_of.hpp"
#include "src/tool/schedule/schedule_files.hpp"
#include "src/tool/support/flag_parser.hpp"
#include "src/train/options/rule_flags.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_config.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <vector>

namespace vocabpipe::tool {

Flag schedule_argument(std::string& name, const std::string& help) {
    return {.names = "SCHEDULE",
            .value = &name,
            .help = help,
            .choices = schedule_names(),
            .free = true};
}

FlagGroup schedule_source_flags(ScheduleFlags& flags) {
    const FlagRange count = between(1, 0x1p30);
    FlagGroup group{
        .flags = {
            {.names = "--pp",
             .value = &flags.pp,
             .help = "Number of pipeline ranks",
             .range = between(1, 65535),  // stage numbers have 16 bits
             .absent = 0},
            {.names = "--microbatches",
             .value = &flags.microbatches,
             .help = "Microbatches per step",
             .range = count,
             .absent = 0},
            {.names = "--vocab-mode",
             .value = named(&flags.vocab_mode, vocab_mode_from),
             .help =
                 "Vocabulary mode: none, redistributed, interlaced, one_barrier or two_barriers",
             .choices = vocab_mode_names(),
             .unset = "none: the schedule as published; a file's own passes"},
            {.names = "--vocab-size",
             .value = &flags.figures.vocab_size,
             .help = "Vocabulary size in rows",
             .range = count,
             .unset = "from the profile; 50304 without --costs, else 32000 per rank"},
            {.names = "--recompute-granularity",
             .value = named(&flags.recompute, recompute_from),
             .help = "Activations that R recomputes before each backward: none, selective or full",
             .choices = recompute_names(),
             .unset = "none; full for a file that contains R"},
            {.names = "--costs",
             .value = &flags.costs,
             .help = "Cost F,B or F,B,V in any unit (of a rank's layers; V: S and T of an even "
                     "share of the vocabulary), or a profile file",
             .unset = "FLOPs of GPT-3 175B, or of another --num-layers, --hidden-size, "
                      "--seq-length, --vocab-size; F of a layer is 12"},
            {.names = "--pass-times",
             .value = &flags.pass_times,
             .help = "CSV file (rank,op,stage,ns) of pass times that replace the figures of "
                     "--costs, or some passes of a profile"},
            {.names = "--latency",
             .value = &flags.figures.latency,
             .help = "Cost of a message, in the unit of --costs F,B (ns with --pass-times)",
             .range = between(0, 0x1p40)},
            {.names = "--hop",
             .value = &flags.figures.hop,
             .help = "Time that a boundary takes on a link beside the latency, in the same unit",
             .range = between(0, 0x1p40)},
            {.names = "--exchange-percent",
             .value = &flags.figures.exchange_percent,
             .help = "Share of F, B and I in which a rank waits for its tensor, context or expert "
                     "ranks: the two passes of a pair (dualpipe-v) hide it behind each other; 0: "
                     "they run one after the other",
             .range = between(0, 100)},
            dialect_flag(flags.dialect, "Pass letters of a PyTorch CSV"),
            {.names = "--num-layers",
             .value = &flags.figures.num_layers,
             .help = "Number of transformer layers",
             .range = count,
             .unset = "from the profile; 96 without --costs, else one per rank"},
            {.names = "--mtp-num-layers",
             .value = &flags.figures.mtp_num_layers,
             .help = "Depths of multi-token prediction, in the last stage: each a layer and a "
                     "projection, and a row of the output layer per token (not of a profile)",
             .unit = "LAYERS",
             .range = between(0, kMostDepths),
             .unset = "none",
             .absent = 0},
            {.names = "--pipeline-model-parallel-layout",
             .value = &flags.figures.layout,
             .help = "Layers of each stage in Megatron's notation, such as Et*3|(tt|)*29m|L; V in "
                     "place of E and L shards the vocabulary layers (not of a profile)",
             .unit = "LAYOUT",
             .unset = "balanced"},
            {.names = "--hidden-size",
             .value = &flags.figures.hidden_size,
             .help =
                 "Hidden size of a bf16 transformer, for its memory, and without --costs its FLOPs",
             .range = count,
             .unset = "12288 without --costs, else 4096"},
            {.names = "--seq-length",
             .value = &flags.figures.seq_length,
             .help = "Tokens per sequence, for memory, and without --costs for FLOPs",
             .range = count},
            {.names = "--lengths",
             .value = &flags.lengths,
             .help = "Sequence lengths of the microbatches, as LENGTH:MICROBATCHES,...; the costs "
                     "are those of the longest, and the order is one that makes the step short",
             .unit = "PAIRS",
             .excludes = {"--seq-length", "--microbatches"}},
            {.names = "--micro-batch-size",
             .value = &flags.figures.micro_batch_size,
             .help = "Sequences per microbatch, for memory with costs that are figures",
             .range = count},
            {.names = "--cores",
             .value = &flags.cores,
             .help = "Number of cores that all ranks share",
             .range = between(1, 65535),
             .unset = "from the profile, else at least one per rank"},
            {.names = "--no-optimizer-barrier",
             .value = &flags.no_optimizer_barrier,
             .help = "Do not let the optimizer step wait for other ranks (post-validation)"},
            {.names = "--communication-order",
             .value = named(&flags.communication_order, communication_order_from),
             .help = "What a communication waits for: the start of the previous one in its lane "
                     "(lanes: hosts), its end (streams: GPU copies), also the start of the "
                     "previous one in any lane (launches: NCCL), or the end of that one (serial)",
             .choices = names_of({CommunicationOrder::lanes, CommunicationOrder::streams,
                                  CommunicationOrder::launches, CommunicationOrder::serial}),
             .unset = "from the profile, else lanes"},
        }};
    std::ranges::move(rule_flags(flags.rule), std::back_inserter(group.flags));
    return group;
}

FlagGroup lowering_flags(ScheduleFlags& flags) {
    return {.flags = {{.names = "--receive-ahead",
                       .value = &flags.receive_ahead,
                       .help = "How many passes before its use to post a receive, or auto: as "
                               "early as useful within the memory limit"},
                      {.names = "--tile-pieces",
                       .value = &flags.tile_pieces,
                       .help = "By how many pieces boundaries between stages travel while they "
                               "are made and used, or auto: by as many as make the step shortest",
                       .unit = "PIECES"},
                      {.names = "--overlap-table",
                       .value = &flags.overlap_table,
                       .help = "What vocabpipe profile --overlap measured: the price of a piece, "
                               "for costs in nanoseconds",
                       .unit = "FILE"},
                      {.names = "--free-vocabulary-collectives",
                       .value = &flags.free_vocabulary_collectives,
                       .help = "Collectives of vocabulary passes cost nothing: what they cost"}}};
}

std::string take_own_flags(const std::string& text, ScheduleFlags& flags) {
    if (std::error_code ignored; std::filesystem::exists(text, ignored)) return text;
    const size_t end = std::min(text.find(','), text.size());
    std::vector<std::string> arguments;
    for (size_t at = end; at < text.size();) {
        const size_t next = std::min(text.find(',', at + 1), text.size());
        const std::string part = text.substr(at + 1, next - at - 1);
        // --costs contains commas itself.
        if (!arguments.empty() && part.find('=') == std::string::npos) {
            arguments.back() += "," + part;
        } else {
            arguments.push_back("--" + part);
        }
        at = next;
    }
    try {
        read_flags({schedule_source_flags(flags), lowering_flags(flags)}, arguments);
    } catch (const UsageError& error) {
        throw UsageError(text + ": " + error.what() +
                         "; use NAME,flag=value,... such as 1f1b,vocab-mode=one_barrier");
    }
    return text.substr(0, end);
}

}  // namespace vocabpipe::tool
