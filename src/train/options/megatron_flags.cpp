// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/megatron_table.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"

#include <climits>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// Keeps the word in `value` if the flag allows it.
FlagText checked_word(const AcceptedFlag& flag, std::string& value) {
    return {.set =
                [&flag, &value](const std::vector<std::string>& words) {
                    value = words.back();
                    if (may_be(flag, value)) return;
                    throw UsageError(std::string(flag.name) + " " + value + ": " +
                                     std::string(flag.remedy));
                },
            .get = [&value] { return value; }};
}

/// The value of a flag; `megatron` stores it.
FlagValue value_in(MegatronFlags& megatron, const AcceptedFlag& flag) {
    switch (flag.takes) {
        case Takes::nothing:
            return &megatron.switches[flag.name];
        case Takes::word:
            return checked_word(flag, megatron.values[flag.name]);
        case Takes::words:
            return &megatron.lists[flag.name];
    }
    return {};
}

Flag accepted_row(const AcceptedFlag& flag, MegatronFlags& megatron) {
    std::string unset(flag.only);
    if (flag.takes != Takes::nothing && unset.empty()) unset = "nothing to choose";
    return {.names = std::string(flag.name),
            .value = value_in(megatron, flag),
            .help = "Megatron's; " + std::string(flag.why),
            .unit = std::string(flag.unit),
            .unset = std::move(unset),
            .ranks = RanksCompare::nothing,
            .decides = Decides::nothing};
}

/// Flags that set options of other flags, too.
std::vector<Flag> other_rows(MegatronFlags& megatron) {
    return {{.names = "--vocab-file",
             .value = &megatron.vocab_file,
             .help = "GPT-2's vocab.json: sets --vocab-size to its number of entries",
             .unit = "FILE",
             .unset = "--vocab-size",
             .ranks = RanksCompare::nothing,  // --vocab-size is compared
             .decides = Decides::nothing},
            {.names = "--distributed-timeout-minutes",
             .value = &megatron.timeout_minutes,
             .help = "Same as --distributed-timeout-seconds with 60 times as many",
             .unit = "MINUTES",
             .range = above(0),
             .unset = "--distributed-timeout-seconds",
             .ranks = RanksCompare::nothing,  // seconds are compared
             .decides = Decides::nothing},
            {.names = "--no-load-optim",
             .value = &megatron.no_load_optimizer,
             .help = "Load no optimizer: only where --load has none, or with --finetune",
             .ranks = RanksCompare::nothing,
             .decides = Decides::nothing},
            {.names = "--enable-zero-bubble",
             .value = &megatron.zero_bubble,
             .help = "Same as --schedule zb",
             .ranks = RanksCompare::nothing,  // --schedule is compared
             .decides = Decides::nothing},
            {.names = "--zero-bubble-v-schedule",
             .value = &megatron.zero_bubble_v,
             .help = "Same as --schedule zb-v",
             .ranks = RanksCompare::nothing,
             .decides = Decides::nothing},
            {.names = "--zero-bubble-max-pending-backward",
             .value = &megatron.most_pending_backwards,
             .help = "With --enable-zero-bubble: same as --memory-limit; zb-v keeps to that of "
                     "1f1b",
             .unit = "MICROBATCHES",
             .range = between(1, INT_MAX),
             .unset = "--memory-limit",
             .ranks = RanksCompare::nothing,  // --memory-limit is compared
             .decides = Decides::nothing},
            {.names = "--data-parallel-sharding-strategy",
             .value = &megatron.sharding_strategy,
             .help = "Same as --zero-stage 1 (optim), 2 (optim_grads) or 3 (optim_grads_params)",
             .unit = "NAME",
             .choices = {"optim", "optim_grads", "optim_grads_params"},
             .unset = "--zero-stage",
             .ranks = RanksCompare::nothing,  // --zero-stage is compared
             .decides = Decides::nothing}};
}

}  // namespace

FlagGroup megatron_flags(MegatronFlags& megatron) {
    FlagGroup group{.title = kMegatronGroup, .flags = other_rows(megatron)};
    for (const AcceptedFlag& flag : accepted_flags()) {
        group.flags.push_back(accepted_row(flag, megatron));
    }
    return group;
}

}  // namespace vocabpipe
