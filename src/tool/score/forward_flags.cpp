// SPDX-License-Identifier: Apache-2.0
#include "src/tool/score/forward_flags.hpp"

#include "src/tool/data/data_flags.hpp"
#include "src/train/options/train_flags.hpp"

#include <vector>

namespace vocabpipe::tool {

Flag load_flag(ForwardOptions& o) {
    return {.names = "--load",
            .value = &o.load,
            .help = "Folder of steps (the newest is used), a step, or a model",
            .unit = "FOLDER",
            .required = true};
}

FlagGroup forward_data_flags(ForwardOptions& o) {
    std::vector<Flag> data = training_data_flags(o.data);
    data.push_back({.names = "--seq-length",
                    .value = &o.seq_length,
                    .help = "Tokens of a sample, as the run that trains on some of them has it",
                    .range = between(1, kLargestSize),
                    .absent = 0,
                    .required = true});
    data.push_back({.names = "--eod-token-id",
                    .value = &o.data.eod_token_id,
                    .help = "ID of the token that ends a document",
                    .unit = "ID",
                    .range = at_least(0),
                    .unset = "from the data",
                    .absent = -1});
    data.push_back({.names = "--eod-mask-loss",
                    .value = &o.data.eod_mask_loss,
                    .help = "Do not count positions whose input ends a document"});
    data.push_back({.names = "--reset-attention-mask",
                    .value = &o.data.reset_attention_mask,
                    .help = "Restrict attention to tokens of the same document"});
    data.push_back({.names = "--reset-position-ids",
                    .value = &o.data.reset_position_ids,
                    .help = "Count learned positions from the beginning of the document"});
    return {.title = "Data", .flags = data};
}

FlagGroup forward_schedule_flags(ForwardOptions& o) {
    return {
        .title = "Schedule",
        .flags = {
            {.names = "--pipeline-model-parallel-size",
             .value = &o.pipeline,
             .help = "Ranks of one pipeline; the others are replicas",
             .range = at_least(1),
             .unset = "all ranks",
             .absent = 0},
            {.names = "--schedule",
             .value = &o.schedule,
             .help = "Where stages are placed, by the name of a schedule of training",
             .unit = "NAME",
             .choices = schedule_names()},
            {.names = "--chunks",
             .value = &o.chunks,
             .help = "Stages per rank",
             .range = at_least(1),
             .unset = "the schedule's own",
             .absent = 0},
            {.names = "--vocab-mode",
             .value = FlagText{
                 .set = [&o](const auto& words) { o.vocab_mode = vocab_mode_from(words.back()); },
                 .get = [&o] { return std::string(to_string(o.vocab_mode)); }},
             .help = "How the vocabulary is divided among the ranks",
             .unit = "MODE",
             .choices = vocab_mode_names()},
            {.names = "--micro-batch-size",
             .value = &o.micro_batch_size,
             .help = "Samples of a microbatch",
             .range = between(1, kLargestSize)}}};
}

FlagGroup forward_device_flags(std::string& device, ForwardOptions& o) {
    return {
        .title = "Devices",
        .flags = {{.names = "--device",
                   .value = &device,
                   .help = "host, or cuda: one GPU per rank; with --transport threads ranks may "
                           "share one",
                   .choices = {"host", "cuda"}},
                  {.names = "--threads-per-rank",
                   .value = &o.threads_per_rank,
                   .help = "OpenMP threads per rank",
                   .range = between(1, 1024),
                   .unset = "the rank's share of the cores",
                   .absent = 0}}};
}

}  // namespace vocabpipe::tool
