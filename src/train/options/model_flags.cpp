// SPDX-License-Identifier: Apache-2.0
// The flags about what runs: the model, its steps, the schedule, the device.
#include "src/model/published/published_models.hpp"
#include "src/support/names_of.hpp"
#include "src/train/options/rule_flags.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <algorithm>
#include <climits>
#include <iterator>

namespace vocabpipe {

namespace {

constexpr double kMostHeads = 1 << 16;

std::string joined(const std::vector<std::string>& names) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
    return all;
}

/// In the notation of --moe-layer-freq; empty: all layers.
std::string layers_text(const std::vector<bool>& layers) {
    std::string text;
    for (const bool layer : layers) text += (text.empty() ? "" : ",") + std::to_string(layer);
    return text;
}

}  // namespace

std::vector<std::string> recompute_names() {
    return names_of({Recompute::none, Recompute::selective, Recompute::full});
}

std::vector<std::string> schedule_names() {
    std::vector<std::string> names;
    for (const Generator& generator : generators()) names.emplace_back(generator.name);
    return names;
}

std::vector<std::string> vocab_mode_names() {
    return names_of({VocabMode::none, VocabMode::redistributed, VocabMode::interlaced,
                     VocabMode::one_barrier, VocabMode::two_barriers});
}

FlagGroup architecture_flags(ModelConfig& m, UnresolvedFlags& u) {
    return {
        .title = "Model",
        .flags = {
            {.names = "--model",
             .value = &u.config,
             .help = "Hugging Face config.json, its folder, or a published model: " +
                     joined(published_models()) +
                     "; use it instead of the other flags of this group",
             .unit = "PATH",
             .choices = published_models(),
             .free = true,
             .ranks = RanksCompare::nothing},
            {.names = "--model-type",
             .value = &u.model_type,
             .help = "Model family: " + joined(model_families()),
             .unit = "NAME",
             .choices = model_families(),
             .free = true,  // set_family() names the nearest one
             .unset = "set by the flags below",
             .meaning = [&m] { return m.family; }},
            {.names = "--num-layers",
             .value = &m.num_layers,
             .help = "Number of transformer layers",
             .unit = "LAYERS",
             .range = between(1, UINT16_MAX)},
            {.names = "--hidden-size",
             .value = &m.hidden_size,
             .help = "Hidden size h",
             .unit = "N",
             .range = between(1, kLargestSize)},
            {.names = "--ffn-hidden-size",
             .value = &m.ffn_hidden_size,
             .help = "Feed-forward hidden size",
             .unit = "N",
             .range = between(1, kLargestSize),
             .unset = "4 h; with a gate, 8 h / 3 rounded down to a multiple of 64"},
            {.names = "--num-attention-heads",
             .value = &m.num_attention_heads,
             .help = "Number of attention heads",
             .unit = "HEADS",
             .range = between(1, kMostHeads)},
            {.names = "--num-query-groups",
             .value = &m.num_query_groups,
             .help = "Number of key/value heads",
             .unit = "HEADS",
             .range = between(1, kMostHeads),
             .unset = "the number of attention heads",
             .absent = 0},
            {.names = "--group-query-attention",
             .value = &u.group_query_attention,
             .help = "Megatron's switch; requires --num-query-groups, which has the same effect by "
                     "itself",
             .ranks = RanksCompare::nothing},
            {.names = "--kv-channels",
             .value = &m.kv_channels,
             .help = "Size of an attention head",
             .unit = "N",
             .range = between(1, kMostHeads),
             .unset = "hidden size / attention heads",
             .absent = 0},
            {.names = "--sliding-window",
             .value = &m.sliding_window,
             .help = "Attention window of the layers that have one (gemma2, gemma3_text, mistral, "
                     "phi3)",
             .unit = "TOKENS",
             .range = between(1, INT32_MAX),
             .unset = "4096; none for phi3",
             .absent = 0},
            {.names = "--max-position-embeddings",
             .value = &m.max_position_embeddings,
             .help = "Learned positions, or the length that a model with rotary ones is made for, "
                     "which does not limit --seq-length",
             .unit = "TOKENS",
             .range = between(1, INT32_MAX),
             .unset = "the sequence length, or with rotary positions that of the loaded model"},
            {.names = "--vocab-size",
             .value = &m.vocab_size,
             .help = "Vocabulary size V, without padding",
             .unit = "ROWS",
             .range = between(1, INT32_MAX)},
            {.names = "--swiglu",
             .value = &u.swiglu,
             .help = "With --normalization RMSNorm and --position-embedding-type rope: same as "
                     "--model-type llama; with --num-experts, too: mixtral",
             .ranks = RanksCompare::nothing},
            {.names = "--normalization",
             .value = &u.normalization,
             .help = "Type of norm",
             .unit = "NAME",
             .choices = {"LayerNorm", "RMSNorm"},
             .unset = "set by the family",
             .ranks = RanksCompare::nothing},
            {.names = "--position-embedding-type",
             .value = &u.positions,
             .help = "Type of position embedding",
             .unit = "NAME",
             .choices = {"learned_absolute", "rope"},
             .unset = "set by the family",
             .ranks = RanksCompare::nothing},
            {.names = "--norm-epsilon",
             .value = &u.norm_epsilon,
             .help = "Epsilon that norms add to the variance",
             .unit = "X",
             .range = above(0),
             .unset = "set by the family",
             .meaning = [&m] { return shortest_text(m.norm_epsilon); }},
            {.names = "--rotary-base",
             .value = &u.rotary_base,
             .help = "Base (theta) of rotary position embeddings",
             .unit = "X",
             .range = above(1),
             .unset = "set by the family",
             .meaning = [&m] { return shortest_text(m.rope.theta); }},
            {.names = "--rotary-percent",
             .value = &u.rotary_percent,
             .help = "Share of every head that rotary positions turn, from 0 to 1 (gpt_neox, phi3)",
             .unit = "X",
             .range = {.least = 0, .most = 1, .above = true},
             .unset = "set by the family",
             .meaning =
                 [&m] { return m.rotary_channels == 0 ? "" : std::to_string(m.rotary_channels); }},
            {.names = "--num-experts",
             .value = &m.moe.experts,
             .help = "Experts of a layer (dots1, mixtral, olmoe, qwen2_moe, qwen3_moe)",
             .unit = "EXPERTS",
             .range = between(1, static_cast<double>(kMostExperts)),
             .unset = "8; none for a family without experts",
             .absent = 0},
            {.names = "--moe-router-topk",
             .value = &m.moe.top_k,
             .help = "Experts of a token",
             .unit = "EXPERTS",
             .range = between(1, static_cast<double>(kMostExperts))},
            {.names = "--moe-ffn-hidden-size",
             .value = &m.moe.ffn_hidden_size,
             .help = "Feed-forward hidden size of an expert (dots1, qwen2_moe, qwen3_moe)",
             .unit = "N",
             .range = between(1, kLargestSize),
             .unset = "the feed-forward hidden size",
             .absent = 0},
            {.names = "--moe-shared-expert-intermediate-size",
             .value = &m.moe.shared_ffn_hidden_size,
             .help = "Feed-forward hidden size of the experts that all tokens share, together "
                     "(dots1, qwen2_moe)",
             .unit = "N",
             .range = between(1, kLargestSize),
             .unset = "the feed-forward hidden size; dots1: that of one expert",
             .absent = 0},
            {.names = "--moe-layer-freq",
             .value = &u.moe_layer_freq,
             .help = "Which layers have experts (dots1, qwen2_moe, qwen3_moe): N for the first of "
                     "every N, or a 1 or 0 for each layer, as in 0,1,1",
             .unit = "LAYERS",
             .unset = "all layers",
             .meaning = [&m] { return layers_text(m.moe.sparse); }},
            {.names = "--moe-router-pre-softmax",
             .value = &u.moe_pre_softmax,
             .help = "Weight experts by their score among all experts, instead of among those that "
                     "the token chose (not mixtral)",
             .meaning = [&m] { return std::string(m.moe.normalize ? "" : "given"); }},
            {.names = "--moe-router-score-function",
             .value = &u.moe_score,
             .help = "What makes scores of a router's logits; sigmoid: dots1",
             .unit = "NAME",
             .choices = {"softmax", "sigmoid"},
             .unset = "set by the family",
             .ranks = RanksCompare::nothing},
            {.names = "--moe-router-num-groups",
             .value = &m.moe.groups,
             .help = "Groups of neighboring experts, of which a token chooses some first (dots1)",
             .unit = "GROUPS",
             .range = between(1, static_cast<double>(kMostExperts))},
            {.names = "--moe-router-group-topk",
             .value = &m.moe.top_groups,
             .help =
                 "Groups that a token chooses its experts from: those whose two best scores add "
                 "up to most (dots1)",
             .unit = "GROUPS",
             .range = between(1, static_cast<double>(kMostExperts))},
            {.names = "--moe-router-topk-scaling-factor",
             .value = &m.moe.scaling,
             .help = "What a token's weights of experts are multiplied by (dots1)",
             .unit = "X",
             .range = above(0)},
            {.names = "--untie-embeddings-and-output-weights",
             .value = &u.untie,
             .help = "Give the output layer its own weight",
             .meaning = [&m] { return std::string(m.tied ? "" : "given"); }}}};
}

FlagGroup step_flags(TrainOptions& o, UnresolvedFlags& u) {
    ModelConfig& m = o.model;
    return {
        .title = "Batch and numerics",
        .flags = {
            {.names = "--seq-length",
             .value = &m.seq_length,
             .help = "Sequence length",
             .unit = "TOKENS",
             .range = between(1, kLargestSize),
             .decides = Decides::samples},
            {.names = "--micro-batch-size",
             .value = &o.micro_batch_size,
             .help = "Sequences per microbatch",
             .unit = "SEQUENCES",
             .range = between(1, kLargestSize)},
            {.names = "--global-batch-size",
             .value = &o.global_batch_size,
             .help = "Sequences per step, over all microbatches and replicas",
             .unit = "SEQUENCES",
             .range = at_least(1)},
            {.names = "--seed",
             .value = &o.seed,
             .help = "Seed of the initial weights and the data order",
             .unit = "N",
             .decides = Decides::samples},
            {.names = "--dtype",
             .value = FlagText{
                 .set =
                     [&m](const auto& words) {
                         m.dtype = words.back() == "bf16" ? DType::bf16 : DType::fp32;
                     },
                 .get = [&m] { return std::string(m.dtype == DType::bf16 ? "bf16" : "fp32"); }},
             .help = "Type of weights and activations; sums and moments are fp32",
             .unit = "NAME",
             .choices = {"fp32", "bf16"}},
            {.names = "--bf16",
             .value = &u.bf16,
             .help = "Same as --dtype bf16",
             .ranks = RanksCompare::nothing},
            {.names = "--init-method-std",
             .value = &m.init_std,
             .help = "Standard deviation of initial weights",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--label-smoothing",
             .value = &m.label_smoothing,
             .help = "Share of the loss that is spread evenly over all tokens, in [0, 1)",
             .unit = "X",
             .range = fraction_below_1()},
            {.names = "--z-loss",
             .value = &m.z_loss,
             .help = "Weight of the squared log partition function in the loss",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--moe-aux-loss-coeff",
             .value = &m.moe.aux_loss,
             .help = "Weight of the load balancing loss of a layer's experts",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--moe-router-enable-expert-bias",
             .value = &u.moe_update_bias,
             .help = "Update the correction bias of routers by the load of experts (dots1)",
             .meaning = [&m] { return std::string(m.moe.bias_rate > 0 ? "given" : ""); }},
            {.names = "--moe-router-bias-update-rate",
             .value = &u.moe_bias_rate,
             .help = "What a step adds to or takes from the correction bias of an expert",
             .unit = "X",
             .range = above(0),
             .unset = "0.001",
             .meaning = [&m] { return m.moe.bias_rate > 0 ? shortest_text(m.moe.bias_rate) : ""; }},
            {.names = "--moe-z-loss-coeff",
             .value = &m.moe.z_loss,
             .help = "Weight of the squared log partition function of a layer's router",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--recompute-granularity",
             .value = FlagText{
                 .set = [&o](const auto& words) { o.recompute = recompute_from(words.back()); },
                 .get = [&o] { return std::string(o.recompute ? to_string(*o.recompute) : ""); }},
             .help = "Activations to recompute before the backward instead of keeping them; "
                     "selective: the outputs of norms and activation functions",
             .unit = "NAME",
             .choices = recompute_names(),
             .unset = "none, or as in the schedule file"},
            {.names = "--recompute-activations",
             .value = &u.recompute_activations,
             .help = "Same as --recompute-granularity selective",
             .ranks = RanksCompare::nothing},
        }};
}

FlagGroup schedule_flags(TrainOptions& o) {
    FlagGroup group{
        .title = "Schedule",
        .flags = {
            {.names = "--pipeline-model-parallel-size",
             .value = &o.pipeline_model_parallel_size,
             .help = "Ranks per pipeline; if there are more ranks, replicas of the pipeline train "
                     "on different data",
             .unit = "RANKS",
             .range = at_least(1),
             .unset = "all ranks",
             .absent = 0,
             .decides = Decides::nothing},  // "ranks" and "replicas" of a saved step say it
            {.names = "--tensor-model-parallel-size",
             .value = &o.tensor_model_parallel_size,
             .help = "Ranks that share each stage: every layer's matrices are cut among them, and "
                     "what is between layers by tokens",
             .unit = "RANKS",
             .range = at_least(1),
             .decides = Decides::nothing},  // "tensor-ranks" of a saved step says it
            {.names = "--expert-model-parallel-size",
             .value = &o.expert_model_parallel_size,
             .help = "Ranks that share the experts of each layer, among the replicas and tensor "
                     "ranks of a stage: tokens travel to the ranks of their experts",
             .unit = "RANKS",
             .range = at_least(1),
             .decides = Decides::nothing},  // "expert-ranks" of a saved step says it
            {.names = "--moe-row-factor",
             .value = &o.moe_row_factor,
             .help = "Memory for the tokens of a rank's experts, over what they have when all "
                     "experts have equally many; more tokens take more time, not more memory",
             .unit = "FACTOR",
             .range = above(0)},
            {.names = "--schedule",
             .value = &o.schedule,
             .help = "A .csv or .json file, or one of " + joined(schedule_names()),
             .unit = "SCHEDULE",
             .choices = schedule_names(),
             .free = true,
             .unset = "1f1b; interleaved where ranks have several stages"},
            {.names = "--vocab-mode",
             .value = FlagText{
                 .set = [&o](const auto& words) { o.vocab_mode = vocab_mode_from(words.back()); },
                 .get = [&o] { return std::string(to_string(o.vocab_mode)); }},
             .help = "How the vocabulary layers are distributed",
             .unit = "NAME",
             .choices = vocab_mode_names()},
            {.names = "--pipeline-model-parallel-layout",
             .value = &o.layout,
             .help = "Layers of each stage, such as Et*3|(tt|)*2,t|L; V in place of E and L shards "
                     "the vocabulary layers",
             .unit = "LAYOUT",
             .unset = "even",
             .decides = Decides::nothing},
            {.names = "--decoder-first-pipeline-num-layers",
             .value = &o.end_layers.first,
             .help = "Transformer layers on the rank of the first stage",
             .unit = "LAYERS",
             .range = at_least(0),
             .unset = "same as the other ranks",
             .absent = -1},
            {.names = "--decoder-last-pipeline-num-layers",
             .value = &o.end_layers.last,
             .help = "Transformer layers on the rank of the last stage",
             .unit = "LAYERS",
             .range = at_least(0),
             .unset = "same as the other ranks",
             .absent = -1},
            {.names = "--num-layers-per-virtual-pipeline-stage",
             .value = &o.layers_per_chunk,
             .help = "Transformer layers per stage, as another way to set --chunks",
             .unit = "LAYERS",
             .range = between(0, UINT16_MAX),
             .unset = "set by --chunks"},
        }};
    std::ranges::move(rule_flags(o.rule), std::back_inserter(group.flags));
    return group;
}

FlagGroup device_flags(TrainOptions& o) {
    return {
        .title = "Devices",
        .flags = {
            {.names = "--device",
             .value = &o.device,
             .help = "Device type: host, or cuda with one GPU per rank (with --transport threads, "
                     "ranks may share a GPU)",
             .unit = "NAME",
             .choices = {"host", "cuda"}},
            {.names = "--threads-per-rank",
             .value = &o.threads_per_rank,
             .help = "OpenMP threads per rank",
             .unit = "N",
             .range = between(1, 1024),
             .unset = "the rank's share of the cores",
             .absent = 0},
            {.names = "--left-multiprocessors",
             .value = &o.gpu.left_multiprocessors,
             .help = "GPU multiprocessors that matrix products leave free for NCCL; affects the "
                     "bits of results",
             .unit = "N",
             .range = at_least(0),
             .unset = "as many as NCCL may use when it connects several ranks, else 0"},
            {.names = "--product-choices",
             .value = &o.gpu.product_choices_file,
             .help =
                 "File from --time-products that selects the algorithms of matrix products on GPUs",
             .unit = "FILE",
             .ranks = RanksCompare::presence,
             .decides = Decides::nothing},  // the checksum of its contents does
            {.names = "--nondeterministic-attention",
             .value = &o.gpu.nondeterministic_attention,
             .help = "Let cuDNN compute gradients of attention on GPUs with an algorithm that is "
                     "faster and whose results differ in their last bits from run to run"},
        }};
}

std::vector<FlagGroup> train_flags(TrainOptions& options, UnresolvedFlags& unresolved) {
    std::vector<FlagGroup> groups{architecture_flags(options.model, unresolved),
                                  step_flags(options, unresolved), schedule_flags(options),
                                  device_flags(options)};
    for (FlagGroup& group : training_flags(options)) groups.push_back(std::move(group));
    groups.push_back(megatron_flags(unresolved.megatron));
    return groups;
}

}  // namespace vocabpipe
