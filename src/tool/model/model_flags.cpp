// SPDX-License-Identifier: Apache-2.0
#include "src/tool/model/model_flags.hpp"

#include "src/tool/launch/launch.hpp"
#include "src/tool/launch/launchers.hpp"
#include "src/tool/model/architecture_flags.hpp"
#include "src/tool/model/megatron_script.hpp"
#include "src/tool/support/text.hpp"
#include "src/train/checkpoint/adapter_config.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/described_step.hpp"
#include "src/train/run/resume.hpp"
#include "vocabpipe/error.hpp"

#include <cstdio>
#include <string>

namespace vocabpipe::tool {

std::vector<FlagGroup> ModelFlags::flags() {
    return {architecture_flags(options_.model, given_), step_flags(options_, given_),
            schedule_flags(options_), device_flags(options_)};
}

void ModelFlags::take_adapters(const GivenFlags& read) {
    const std::string flag = "--load-adapter " + options_.load_adapter;
    if (options_.load.empty()) {
        throw UsageError(flag + ": needs the model that they were trained with; set --load");
    }
    for (const char* const other : {"--lora-rank", "--lora-alpha", "--lora-target-modules"}) {
        if (!read.contains(other)) continue;
        throw UsageError(std::string(other) + ": " + flag + " already says it; remove the flag");
    }
    options_.model.lora = load_adapter_config(options_.load_adapter);
}

void ModelFlags::resolve(const GivenFlags& read) {
    ModelConfig& m = options_.model;
    // One command line for a job that is restarted again and again, as with Megatron.
    if (goes_on_where_it_saves(options_) && is_before_first_step(options_.load)) {
        if (first_of_launch()) {
            std::printf("--load %s: no saved step found; starting a new run\n",
                        one_line(options_.load).c_str());
        }
        options_.load.clear();
    }
    const CheckpointSource loaded = options_.load.empty()
                                        ? CheckpointSource()
                                        : find_checkpoint(options_.load, options_.finetune);
    check_optimizer_load(given_.megatron, options_, loaded.training);
    const bool past_damage =
        loaded.training && loaded.folder != options_.load && passes_over_damage(options_);
    ArchitectureFlags(read, m, given_)
        .resolve(past_damage ? newest_described_step(options_.load) : loaded.folder);
    if (!options_.load_adapter.empty()) take_adapters(read);
    const int64_t end = options_.data.eod_token_id;
    if (m.ends_of_text.empty() && end >= 0 && end < m.vocab_size) {
        m.ends_of_text = {static_cast<int32_t>(end)};
    }
    check_accepted(read, m);
    if (given_.bf16) {
        if (read.contains("--dtype") && m.dtype != DType::bf16) {
            throw UsageError("--dtype fp32: conflicts with --bf16; use only one of them");
        }
        m.dtype = DType::bf16;
    }
    if (given_.recompute_activations) {
        if (options_.recompute.value_or(Recompute::selective) != Recompute::selective) {
            throw UsageError("--recompute-granularity " +
                             std::string(to_string(*options_.recompute)) +
                             ": conflicts with --recompute-activations, which means selective; use "
                             "only one of them");
        }
        options_.recompute = Recompute::selective;
    }
    // A layout determines whether the vocabulary layers are whole.
    const bool whole = !options_.layout.empty() && options_.layout.find('V') == std::string::npos;
    if (whole && !read.contains("--vocab-mode")) options_.vocab_mode = VocabMode::none;
    options_.schedule_by_stages = !read.contains("--schedule");
    use_zero_bubble(given_.megatron, read, options_);
    use_sharding_strategy(given_.megatron, read, options_);
    if (options_.rule.chunks != 0 && options_.layers_per_chunk != 0) {
        throw UsageError("--num-layers-per-virtual-pipeline-stage " +
                         std::to_string(options_.layers_per_chunk) + ": conflicts with --chunks " +
                         std::to_string(options_.rule.chunks) + "; use only one of them");
    }
}

}  // namespace vocabpipe::tool
