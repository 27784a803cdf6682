// SPDX-License-Identifier: Apache-2.0
#include "src/plan/list_steps.hpp"

#include "src/model/router_sums.hpp"
#include "src/plan/context_costs.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

std::string text(int64_t number) {
    return std::to_string(number);
}

/// Meshes of p, t, C and d whose product is the number of GPUs.
std::vector<Mesh> meshes(const PlanOptions& options) {
    std::vector<Mesh> result;
    for (const int context : options.context) {
        for (const int tensor : options.tensor) {
            const int64_t team = int64_t{context} * tensor;
            const auto add = [&](int64_t pipeline, int64_t data) {
                if (pipeline * team * data != options.gpus) return;
                result.push_back({.pipeline = static_cast<int>(pipeline),
                                  .data = static_cast<int>(data),
                                  .tensor = tensor,
                                  .context = context});
            };
            if (!options.pipeline.empty() && !options.data.empty()) {
                for (const int pipeline : options.pipeline) {
                    for (const int data : options.data) add(pipeline, data);
                }
            } else if (!options.pipeline.empty()) {
                for (const int64_t pipeline : options.pipeline) {
                    add(pipeline, options.gpus / (pipeline * team));
                }
            } else if (!options.data.empty()) {
                for (const int64_t data : options.data) add(options.gpus / (data * team), data);
            } else {
                add(options.gpus / team, 1);
            }
        }
    }
    if (result.empty()) {
        throw UsageError("--gpus " + text(options.gpus) +
                         ": is not the product of any listed --tensor-model-parallel-size, "
                         "--context-parallel-size, --pipeline-model-parallel-size and "
                         "--data-parallel-size; list divisors");
    }
    return result;
}

/// Why tensor ranks cannot share the model's layers; empty: they can.
std::string tensor_refusal(const ModelConfig& config, int ranks) {
    if (ranks == 1) return {};
    if (config.has_own_layers()) return "layers of your own are not cut: t must be 1";
    if (config.has_latents()) return "latent attention is not cut: t must be 1";
    const auto refused = [&](int64_t count) { return count % ranks != 0; };
    const auto why = [&](int64_t count, const char* what) {
        return "t=" + text(ranks) + " does not divide the " + text(count) + " " + what;
    };
    if (refused(config.num_attention_heads)) return why(config.num_attention_heads, "heads");
    if (refused(config.kv_heads())) return why(config.kv_heads(), "key/value heads");
    const auto routed = static_cast<int>(routed_layers(config).size());
    if (routed < config.num_layers + config.mtp_num_layers && refused(config.ffn_hidden_size)) {
        return why(config.ffn_hidden_size, "columns of the MLP");
    }
    const bool shared = routed > 0 && config.moe.shared_expert && !config.moe.shared_gate;
    if (shared && refused(config.shared_ffn_hidden_size())) {
        return why(config.shared_ffn_hidden_size(), "columns of the shared expert");
    }
    return {};
}

/// Why expert ranks cannot share the model's experts; empty: they can.
std::string expert_refusal(const ModelConfig& config, const Candidate& step) {
    const Mesh& mesh = step.mesh;
    if (mesh.expert == 1) return {};
    const int64_t experts = config.moe.experts;
    const int groups = step.expert_groups(), parts = step.expert_tensor;
    if (experts == 0) {
        return std::string("the model has no experts: ") + (groups > 1 ? "e" : "x") + " must be 1";
    }
    if (experts % groups != 0) {
        return "e=" + text(groups) + " does not divide the " + text(experts) + " experts";
    }
    if (config.expert_ffn_hidden_size() % parts != 0) {
        return "x=" + text(parts) + " does not divide the " +
               text(config.expert_ffn_hidden_size()) + " columns of an expert";
    }
    const std::string ranks = (parts == 1 ? "e=" : "e x=") + text(mesh.expert);
    const bool cut = mesh.context > 1;
    if (mesh.slices() % mesh.expert != 0) {
        return ranks + (cut ? " does not divide t C d" : " does not divide t d");
    }
    if (!mesh.teams_nest()) {
        return ranks + " is neither a divisor nor a multiple of t=" + text(mesh.tensor) +
               (cut ? " and of t C=" + text(mesh.size_of(Axis::context_tensor)) : "");
    }
    return {};
}

/// Why the batch does not divide as the step needs; empty: it does.
std::string batch_refusal(const PlanOptions& options, const Candidate& step) {
    const Mesh& mesh = step.mesh;
    if (mesh.context > 1 && options.model.config.has_own_layers()) {
        return "layers of your own need whole sequences: C must be 1";
    }
    if (mesh.context > 1 && options.model.config.has_latents()) {
        return "latent attention needs whole sequences: C must be 1";
    }
    if (mesh.context > 1 && options.seq_length % (2 * mesh.context) != 0) {
        return "C=" + text(mesh.context) + " does not divide the " + text(options.seq_length) +
               " tokens of a sequence into two segments for every rank";
    }
    const int64_t tokens = step.micro_batch_size * options.seq_length / mesh.context;
    if (tokens % mesh.tensor != 0) {
        return "t=" + text(mesh.tensor) + " does not divide the " + text(tokens) +
               " tokens of a microbatch";
    }
    if (options.model.config.vocab_size / mesh.pipeline < mesh.tensor) {
        return "a vocabulary of " + text(options.model.config.vocab_size) +
               " rows (--vocab-size) has less than one for every rank";
    }
    if (options.global_batch_size % (step.micro_batch_size * mesh.data) != 0) {
        return "--global-batch-size " + text(options.global_batch_size) +
               " does not divide among replicas and microbatches";
    }
    return {};
}

std::string refusal(const PlanOptions& options, const Candidate& step) {
    for (std::string why :
         {tensor_refusal(options.model.config, step.mesh.tensor),
          expert_refusal(options.model.config, step), batch_refusal(options, step)}) {
        if (!why.empty()) return why;
    }
    return {};
}

}  // namespace

void list_all_sizes(PlanOptions& options) {
    const ModelConfig& config = options.model.config;
    options.recompute = {Recompute::none, Recompute::selective, Recompute::full};
    options.data.clear();
    options.pipeline.clear();
    for (int ranks = 1; ranks <= options.gpus; ++ranks) {
        if (options.gpus % ranks == 0) options.pipeline.push_back(ranks);
    }
    if (options.profile) return;
    const auto choose = [&](auto& list, const auto& possible, const auto& divides) {
        list.clear();
        std::copy_if(possible.begin(), possible.end(), std::back_inserter(list), divides);
    };
    const std::vector<int> divisors = options.pipeline;
    choose(options.tensor, divisors,
           [&](int ranks) { return tensor_refusal(config, ranks).empty(); });
    choose(options.expert, divisors, [&](int ranks) {
        return ranks == 1 || (config.moe.experts > 0 && config.moe.experts % ranks == 0);
    });
    choose(options.expert_tensor, divisors, [&](int ranks) {
        return ranks == 1 ||
               (config.moe.experts > 0 && ranks * config.moe.experts <= options.gpus &&
                config.expert_ffn_hidden_size() % ranks == 0);
    });
    choose(options.micro_batch_sizes, std::array<int64_t, 4>{1, 2, 4, 8},
           [&](int64_t size) { return options.global_batch_size % size == 0; });
}

Candidates list_steps(const PlanOptions& options, const ModelOnDevice& model) {
    Candidates result;
    const auto add = [&](Candidate step) {
        if (std::string why = refusal(options, step); !why.empty()) {
            result.skipped.emplace_back(step, std::move(why));
            return;
        }
        step.microbatches =
            static_cast<int>(options.global_batch_size / (step.micro_batch_size * step.mesh.data));
        step.context_form = faster_context_form(model, step);
        result.possible.push_back(step);
    };
    for (const Mesh& mesh : meshes(options)) {
        for (const int expert : options.expert) {
            for (const int expert_tensor : options.expert_tensor) {
                Candidate step{.mesh = mesh, .expert_tensor = expert_tensor};
                step.mesh.expert = expert * expert_tensor;
                for (const int64_t size : options.micro_batch_sizes) {
                    for (const Recompute recompute : options.recompute) {
                        step.micro_batch_size = size;
                        step.recompute = recompute;
                        add(step);
                    }
                }
            }
        }
    }
    return result;
}

}  // namespace vocabpipe
