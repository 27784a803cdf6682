// SPDX-License-Identifier: Apache-2.0
#include "src/tool/model_flags.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/generate.hpp"

#include <algorithm>

namespace vocabpipe::tool {

namespace {

std::string schedule_names() {
    std::string names;
    for (const Generator& generator : generators()) {
        names += (names.empty() ? "" : ", ") + std::string(generator.name);
    }
    return names;
}

/// Megatron describes a model by its parts. Which family has these?
ModelFamily family_of(bool swiglu, const std::string& normalization, const std::string& positions) {
    if (swiglu && normalization == "RMSNorm" && positions == "rope") return ModelFamily::llama;
    if (!swiglu && normalization != "RMSNorm" && positions != "rope") return ModelFamily::gpt2;
    throw UsageError(
        "--swiglu, --normalization RMSNorm, --position-embedding-type rope: give all of them "
        "(llama) or none (gpt2), or say --model-type");
}

/// As Megatron chooses it: 4 h; of gated layers two thirds of it, in whole 64s.
int64_t default_ffn_hidden_size(const ModelConfig& m) {
    return m.gated ? std::max<int64_t>(8 * m.hidden_size / 3 / 64 * 64, 64) : 4 * m.hidden_size;
}

void add_model(CLI::App& app, ModelConfig& m) {
    app.add_option("--num-layers", m.num_layers, "Transformer layers")->capture_default_str();
    app.add_option("--hidden-size", m.hidden_size, "Hidden size h")->capture_default_str();
    app.add_option("--ffn-hidden-size", m.ffn_hidden_size,
                   "Feed-forward size (default 4 h; with a gate 8 h / 3 in whole 64s)");
    app.add_option("--num-attention-heads", m.num_attention_heads, "Attention heads")
        ->capture_default_str();
    app.add_option("--num-query-groups", m.num_query_groups,
                   "Heads of keys and values (default: as many as of queries)")
        ->check(CLI::PositiveNumber);
    app.add_option("--kv-channels", m.kv_channels,
                   "Size of a head (default: hidden size / attention heads)")
        ->check(CLI::PositiveNumber);
    app.add_option("--sliding-window", m.sliding_window,
                   "Tokens that Gemma 2's windowed layers see")
        ->check(CLI::PositiveNumber);
    app.add_option("--seq-length", m.seq_length, "Tokens per sequence")->capture_default_str();
    app.add_option("--max-position-embeddings", m.max_position_embeddings,
                   "Positions the model is made for (default: the sequence length)");
    app.add_option("--vocab-size", m.vocab_size, "Vocabulary rows V, unpadded")
        ->capture_default_str();
    app.add_option("--init-method-std", m.init_std, "Standard deviation of initial weights")
        ->capture_default_str();
    app.add_option("--label-smoothing", m.label_smoothing, "Label smoothing in [0, 1)")
        ->capture_default_str();
    app.add_option("--z-loss", m.z_loss, "Weight of the squared log partition function")
        ->capture_default_str();
}

void add_schedule(CLI::App& app, TrainOptions& t) {
    app.add_option("--pipeline-model-parallel-size", t.pipeline_model_parallel_size,
                   "Checked against the ranks that were started")
        ->check(CLI::PositiveNumber);
    app.add_option("--schedule", t.schedule,
                   "Schedule: a .csv or .json file, or " + schedule_names())
        ->capture_default_str();
    app.add_option(
        "--pipeline-model-parallel-layout", t.layout,
        "Layers of every stage, such as Et*3|(tt|)*2,t|L; V in place of E and L: sharded");
    app.add_option("--chunks,--num-virtual-stages-per-pipeline-rank", t.chunks,
                   "Stages per rank v (default: the schedule's own)");
    app.add_option("--num-layers-per-virtual-pipeline-stage", t.layers_per_chunk,
                   "The same, from the layers of one stage");
    app.add_option(
        "--group-size,--microbatch-group-size-per-virtual-pipeline-stage", t.group_size,
        "Microbatches in a row per stage, of interleaved schedules (default: the ranks)");
    app.add_option("--memory-limit,--schedule-memory-limit", t.memory_limit,
                   "Most activations alive on a rank, in chunks, of schedules that trade memory "
                   "for bubble (default: the schedule's own)");
    app.add_option("--warm-up-depth", t.warm_up_depth,
                   "Microbatches between the stages of 1F1B (default: 1, eager 2)");
    app.add_option("--search-moves", t.search_moves,
                   "Moves of a local search for a shorter step under --schedule-costs (default: "
                   "0, the schedule's own order)");
}

}  // namespace

ModelFlags::ModelFlags(CLI::App& app, TrainOptions& options) : app_(app), options_(options) {
    app.option_defaults()->take_last();  // as argparse does: scripts append what they override
    add_model(app, options.model);
    app.add_option("--model-type", model_type_, "gpt2, llama, qwen2, qwen3 or gemma2");
    app.add_flag("--swiglu", swiglu_, "With RMSNorm and rope: the same as --model-type llama");
    app.add_option("--normalization", normalization_, "LayerNorm or RMSNorm")
        ->check(CLI::IsMember({"LayerNorm", "RMSNorm"}));
    app.add_option("--position-embedding-type", positions_, "learned_absolute or rope")
        ->check(CLI::IsMember({"learned_absolute", "rope"}));
    app.add_flag("--group-query-attention", group_query_attention_,
                 "Needs --num-query-groups, which says it by itself");
    app.add_option("--norm-epsilon", norm_epsilon_, "Of norms (default: the family's)");
    app.add_option("--rotary-base", rotary_base_, "Theta of rotary positions (default: 10000)");
    app.add_flag("--untie-embeddings-and-output-weights", untie_,
                 "Give the output layer a weight of its own");
    app.add_option("--dtype", dtype_, "fp32 or bf16")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    app.add_flag("--bf16", bf16_, "Same as --dtype bf16");
    app.add_option("--micro-batch-size", options.micro_batch_size, "Sequences per microbatch")
        ->capture_default_str();
    app.add_option("--global-batch-size", options.global_batch_size, "Sequences per step")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "Seed of weights and data order")->capture_default_str();
    add_schedule(app, options);
    app.add_option("--vocab-mode", vocab_mode_,
                   "none, redistributed, interlaced, one_barrier, two_barriers")
        ->capture_default_str();
    app.add_option("--recompute-granularity", recompute_,
                   "Activations that are made again before the backward instead of kept: none, "
                   "selective (outputs of norms and activation functions) or full");
    app.add_flag("--recompute-activations", recompute_activations_,
                 "Same as --recompute-granularity selective");
    app.add_option("--threads-per-rank", options.threads_per_rank,
                   "OpenMP threads per rank (default: the rank's share of the cores)");
}

void ModelFlags::resolve() const {
    ModelConfig& m = options_.model;
    set_family(m, model_type_.empty() ? family_of(swiglu_, normalization_, positions_)
                                      : model_family_from(model_type_));
    if (norm_epsilon_) m.norm_epsilon = *norm_epsilon_;
    if (rotary_base_) m.rope.theta = *rotary_base_;
    if (group_query_attention_ && m.num_query_groups == 0) {
        throw UsageError("--group-query-attention: give --num-query-groups, too");
    }
    if (app_.count("--ffn-hidden-size") == 0) m.ffn_hidden_size = default_ffn_hidden_size(m);
    if (app_.count("--max-position-embeddings") == 0) m.max_position_embeddings = m.seq_length;
    m.tied = !untie_;
    m.dtype = bf16_ || dtype_ == "bf16" ? DType::bf16 : DType::fp32;
    options_.vocab_mode = vocab_mode_from(vocab_mode_);
    options_.recompute = recompute_activations_ ? Recompute::selective : Recompute::none;
    if (!recompute_.empty()) {
        options_.recompute = recompute_from(recompute_);
        if (recompute_activations_ && options_.recompute != Recompute::selective) {
            throw UsageError("--recompute-granularity " + recompute_ +
                             ": --recompute-activations says selective; give one of them");
        }
    }
    // A layout says by itself whether the vocabulary layers are whole.
    const bool whole = !options_.layout.empty() && options_.layout.find('V') == std::string::npos;
    if (whole && app_.count("--vocab-mode") == 0) options_.vocab_mode = VocabMode::none;
    if (app_.count("--threads-per-rank") > 0 && options_.threads_per_rank < 1) {
        throw UsageError("--threads-per-rank " + std::to_string(options_.threads_per_rank) +
                         ": must be at least 1");
    }
    if (options_.chunks != 0 && options_.layers_per_chunk != 0) {
        throw UsageError("--num-layers-per-virtual-pipeline-stage " +
                         std::to_string(options_.layers_per_chunk) + ": --chunks " +
                         std::to_string(options_.chunks) + " says it already; give one of them");
    }
}

}  // namespace vocabpipe::tool
