// SPDX-License-Identifier: Apache-2.0
#include "src/tool/model/megatron_script.hpp"

#include "src/train/options/megatron_table.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe::tool {

namespace {

/// The current value, given or not.
std::string value_of(const Flag& flag) {
    if (flag.meaning) return flag.meaning();
    return flag.unset.empty() ? flag.text() : flag.unset;
}

bool any_given(const std::vector<Flag>& flags, const GivenFlags& given) {
    return std::ranges::any_of(flags,
                               [&](const Flag& flag) { return given.contains(flag.name()); });
}

/// Whether flags describe the model, not a file.
bool is_of_flags(const GivenFlags& given) {
    return given.contains("--num-layers") || given.contains("--hidden-size") ||
           (!given.contains("--model") && !given.contains("--load"));
}

}  // namespace

void check_accepted(const GivenFlags& given, const ModelConfig& model) {
    for (const AcceptedFlag& flag : accepted_flags()) {
        if (flag.holds == nullptr || !given.contains(flag.name) || flag.holds(model)) continue;
        throw UsageError(std::string(flag.name) + ": --model-type " + model.family + " " +
                         std::string(flag.remedy));
    }
}

void check_optimizer_load(const MegatronFlags& megatron, const TrainOptions& options,
                          bool loads_step) {
    const bool needs_none = options.finetune || options.evaluation.skip_train;
    if (!megatron.no_load_optimizer || needs_none || !loads_step) return;
    throw UsageError("--no-load-optim: --load " + options.load +
                     " is a saved step, which goes on with its optimizer; remove the flag, or add "
                     "--finetune to start at step 1 from its weights");
}

void use_zero_bubble(const MegatronFlags& megatron, const GivenFlags& given,
                     TrainOptions& options) {
    if (!megatron.zero_bubble && !megatron.zero_bubble_v) {
        if (!megatron.most_pending_backwards) return;
        throw UsageError("--zero-bubble-max-pending-backward " +
                         std::to_string(*megatron.most_pending_backwards) +
                         ": requires --enable-zero-bubble; add it, or use --memory-limit");
    }
    const std::string flag =
        megatron.zero_bubble_v ? "--zero-bubble-v-schedule" : "--enable-zero-bubble";
    const std::string schedule = megatron.zero_bubble_v ? "zb-v" : "zb";
    if (given.contains("--schedule") && options.schedule != schedule) {
        throw UsageError("--schedule " + options.schedule + ": conflicts with " + flag +
                         ", which means " + schedule + "; use only one of them");
    }
    options.schedule = schedule;
    options.schedule_by_stages = false;
    if (!megatron.most_pending_backwards || megatron.zero_bubble_v) return;
    if (given.contains("--memory-limit")) {
        throw UsageError("--memory-limit " + std::to_string(options.rule.memory_limit) +
                         ": conflicts with --zero-bubble-max-pending-backward " +
                         std::to_string(*megatron.most_pending_backwards) +
                         "; use only one of them");
    }
    options.rule.memory_limit = *megatron.most_pending_backwards;
}

void use_sharding_strategy(const MegatronFlags& megatron, const GivenFlags& given,
                           TrainOptions& options) {
    const std::string& strategy = megatron.sharding_strategy;
    if (strategy.empty()) return;
    const int stage = strategy == "optim" ? 1 : strategy == "optim_grads" ? 2 : 3;
    if (given.contains("--zero-stage") && options.zero.stage != stage) {
        throw UsageError("--zero-stage " + std::to_string(options.zero.stage) +
                         ": conflicts with --data-parallel-sharding-strategy " + strategy +
                         ", which means " + std::to_string(stage) + "; use only one of them");
    }
    options.zero.stage = stage;
}

std::string other_defaults(const std::vector<FlagGroup>& groups, const GivenFlags& given,
                           const ModelConfig& model) {
    const bool of_megatron = std::ranges::any_of(groups, [&](const FlagGroup& group) {
        return group.title == kMegatronGroup && any_given(group.flags, given);
    });
    if (!of_megatron) return "";
    std::string list;
    for (const MegatronDefault& other : megatron_defaults()) {
        if (given.contains(other.flag) || (other.of_model && !is_of_flags(given)) ||
            (other.counts != nullptr && !other.counts(model))) {
            continue;
        }
        std::string here(other.here == nullptr ? "" : other.here(model));
        for (const FlagGroup& group : groups) {
            const auto row = std::ranges::find(group.flags, other.flag, &Flag::name);
            if (here.empty() && row != group.flags.end()) here = value_of(*row);
        }
        if (here == other.there) continue;
        list += (list.empty() ? "" : ", ") + std::string(other.flag) + " " + here + " (there " +
                std::string(other.there) + ")";
    }
    return list.empty() ? "" : "not given, and not as Megatron has it: " + list;
}

}  // namespace vocabpipe::tool
