// SPDX-License-Identifier: Apache-2.0
// From a row to the run that it stands for.
#include "schedules/placement.hpp"
#include "src/plan/planned_config.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/model_flops.hpp"
#include "vocabpipe/plan.hpp"
#include "vocabpipe/stage_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

/// A word as a shell reads it.
std::string shell_word(const std::string& word) {
    const auto plain = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               std::string_view("_-./,:=+@%").find(c) != std::string_view::npos;
    };
    if (!word.empty() && std::ranges::all_of(word, plain)) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return quoted + "'";
}

/// Whether train_gpt would spread the layers over the stages in another way, or refuse stages
/// without a layer.
bool needs_layout(const PlanOptions& options, const Candidate& candidate) {
    const ModelConfig& config = options.model.config;
    const std::vector<int>& layers = candidate.layers_per_stage;
    if (mtp_stage(options, candidate) + 1 < std::ssize(layers) && config.mtp_num_layers > 0) {
        return true;
    }
    if (candidate.vocab_mode == VocabMode::redistributed) return true;
    if (std::ranges::find(layers, 0) != layers.end()) return true;
    const std::vector<int> ranks = rank_of_stage(generator(candidate.schedule).placement,
                                                 candidate.mesh.pipeline, candidate.chunks);
    return layers != layers_per_stage(config.num_layers, ranks, candidate.vocab_mode,
                                      {.mtp_layers = mtp_in_layers(config)});
}

/// Appends flags with numbers.
class TrainFlags {
public:
    void add(std::string name, std::string value = {}) {
        flags.push_back({std::move(name), std::move(value)});
    }
    void add(std::string name, int64_t value) { add(std::move(name), std::to_string(value)); }

    std::vector<TrainFlag> flags;
};

/// A profile records the sizes of its model, but no name.
void add_sizes(const ModelConfig& config, TrainFlags& to) {
    to.add("--num-layers", config.num_layers);
    to.add("--hidden-size", config.hidden_size);
    to.add("--ffn-hidden-size", config.ffn_hidden_size);
    to.add("--num-attention-heads", config.num_attention_heads);
    to.add("--max-position-embeddings", config.max_position_embeddings);
    to.add("--vocab-size", config.vocab_size);
    if (!config.tied) to.add("--untie-embeddings-and-output-weights");
}

void add_model(const PlanOptions& options, TrainFlags& to) {
    const PlannedModel& model = options.model;
    if (options.profile) return add_sizes(model.config, to);
    to.add("--model", model.source.empty() ? model.name : model.source);
    if (model.file_vocab_size != 0 && model.file_vocab_size != model.config.vocab_size) {
        to.add("--vocab-size", model.config.vocab_size);
    }
    if (model.file_mtp_layers != model.config.mtp_num_layers) {
        to.add("--mtp-num-layers", model.config.mtp_num_layers);
    }
}

void add_schedule(const PlanOptions& options, const Candidate& candidate, TrainFlags& to) {
    to.add("--schedule", candidate.schedule);
    if (candidate.chunks != generator(candidate.schedule).chunks) {
        to.add("--chunks", candidate.chunks);
    }
    if (candidate.memory_limit != 0) to.add("--memory-limit", candidate.memory_limit);
    if (candidate.overlap_pairs) to.add("--overlap-pairs");
    to.add("--vocab-mode", std::string(to_string(candidate.vocab_mode)));
    if (needs_layout(options, candidate)) {
        const bool shards = sharded(candidate.vocab_mode);
        to.add("--pipeline-model-parallel-layout",
               print_stage_layout({.layers = candidate.layers_per_stage,
                                   .sharded_input = shards,
                                   .sharded_output = shards,
                                   .mtp_layers = options.model.config.mtp_num_layers,
                                   .mtp_stage = mtp_stage(options, candidate)}));
    }
    if (candidate.mesh.pipeline > 1) to.add("--schedule-costs", std::string("auto"));
    if (options.receive_ahead != 0) to.add("--receive-ahead", options.receive_ahead);
    if (candidate.zero.stage == 1) return;
    to.add("--zero-stage", candidate.zero.stage);
    to.add("--reshard-after", std::string(to_string(candidate.zero.reshard_after)));
    if (candidate.zero.stage == 3) to.add("--gather-ahead", candidate.zero.gather_ahead);
}

void add_ranks(const Candidate& candidate, TrainFlags& to) {
    const Mesh& mesh = candidate.mesh;
    to.add("--pipeline-model-parallel-size", mesh.pipeline);
    if (mesh.tensor > 1) to.add("--tensor-model-parallel-size", mesh.tensor);
    if (mesh.context > 1) {
        to.add("--context-parallel-size", mesh.context);
        if (candidate.context_form != ContextForm::allgather) {
            to.add("--cp-comm-type", std::string(to_string(candidate.context_form)));
        }
    }
    if (candidate.expert_groups() > 1) {
        to.add("--expert-model-parallel-size", candidate.expert_groups());
    }
    if (candidate.expert_tensor > 1) {
        to.add("--expert-tensor-parallel-size", candidate.expert_tensor);
    }
}

/// Profiles of hosts describe their communication as lanes.
bool is_for_hosts(const PlanOptions& options) {
    return options.profile &&
           options.profile->costs.communication_order() == CommunicationOrder::lanes;
}

}  // namespace

std::vector<TrainFlag> train_flags_of(const PlanOptions& options, const Candidate& candidate) {
    TrainFlags to;
    add_model(options, to);
    add_ranks(candidate, to);
    add_schedule(options, candidate, to);
    to.add("--seq-length", options.seq_length);
    to.add("--micro-batch-size", candidate.micro_batch_size);
    to.add("--global-batch-size", options.global_batch_size);
    to.add("--dtype", planned_config(options).dtype == DType::bf16 ? "bf16" : "fp32");
    if (candidate.recompute != Recompute::none) {
        to.add("--recompute-granularity", std::string(to_string(candidate.recompute)));
    }
    for (const ParameterGroup& group : options.parameter_groups) {
        to.add("--param-group", group.text);
    }
    const Mesh& mesh = candidate.mesh;
    const bool shared = mesh.tensor > 1 || mesh.context > 1 || mesh.expert > 1;
    if (shared && options.trainer.blocking_exchanges) to.add("--blocking-exchanges");
    if (!is_for_hosts(options)) to.add("--device", "cuda");
    return std::move(to.flags);
}

std::string train_command(const PlanOptions& options, const Candidate& candidate) {
    std::string line = "mpirun -np " + std::to_string(options.gpus);
    if (!options.profile && options.gpus > options.device.gpus_per_node.value) {
        line += " --hostfile HOSTS";
    }
    line += " train_gpt";
    for (const TrainFlag& flag : train_flags_of(options, candidate)) {
        line += " " + flag.name + (flag.value.empty() ? "" : " " + shell_word(flag.value));
    }
    return line + " --data-path PREFIX";
}

}  // namespace vocabpipe
