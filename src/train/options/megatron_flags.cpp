// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/train_flags.hpp"

#include <array>
#include <string_view>

namespace vocabpipe {

namespace {

struct Named {
    std::string_view name, help;
};

// What they ask for holds in every run.
constexpr std::array kSwitches{
    Named{"--sequence-parallel",
          "Megatron's switch; tensor ranks always cut what is between layers by tokens"},
    Named{"--use-distributed-optimizer",
          "Megatron's switch; replicas always share the optimizer's work and state"},
    Named{"--overlap-grad-reduce",
          "Megatron's switch; gradients are always added up beside the remaining passes"},
    Named{"--overlap-param-gather",
          "Megatron's switch; updated weights always travel bucket by bucket"},
    Named{"--use-flash-attn", "Megatron's switch; attention never keeps its scores"},
    Named{"--use-mcore-models", "Megatron's switch; models are this program's"},
    Named{"--moe-grouped-gemm", "Megatron's switch; products of experts are always grouped"},
};
static_assert(kSwitches.size() == MegatronFlags::kSwitches);

// There is nothing to choose.
constexpr std::array kValues{
    Named{"--distributed-backend", "Megatron's; --device and --transport choose it here"},
    Named{"--attention-backend", "Megatron's; there is one for each device"},
    Named{"--transformer-impl", "Megatron's; there is one for each device"},
    Named{"--data-impl", "Megatron's; --data-format chooses it here"},
    Named{"--tokenizer-type", "Megatron's; data are tokens already"},
    Named{"--moe-token-dispatcher-type",
          "Megatron's; tokens always go to the ranks of their experts"},
    Named{"--merge-file", "Megatron's; data are tokens already"},
};
static_assert(kValues.size() == MegatronFlags::kValues);

}  // namespace

FlagGroup megatron_flags(MegatronFlags& megatron) {
    FlagGroup group{.title = "Read in Megatron's scripts", .flags = {}};
    group.flags.push_back({.names = "--vocab-file",
                           .value = &megatron.vocab_file,
                           .help = "GPT-2's vocab.json: sets --vocab-size to its number of entries",
                           .unit = "FILE",
                           .unset = "--vocab-size",
                           .ranks = RanksCompare::nothing,  // --vocab-size is compared
                           .decides = Decides::nothing});
    for (size_t i = 0; i < kSwitches.size(); ++i) {
        group.flags.push_back({.names = std::string(kSwitches[i].name),
                               .value = &megatron.switches[i],
                               .help = std::string(kSwitches[i].help),
                               .ranks = RanksCompare::nothing,
                               .decides = Decides::nothing});
    }
    for (size_t i = 0; i < kValues.size(); ++i) {
        group.flags.push_back({.names = std::string(kValues[i].name),
                               .value = &megatron.values[i],
                               .help = std::string(kValues[i].help),
                               .unit = "NAME",
                               .unset = "nothing to choose",
                               .ranks = RanksCompare::nothing,
                               .decides = Decides::nothing});
    }
    return group;
}

}  // namespace vocabpipe
