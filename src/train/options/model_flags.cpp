// SPDX-License-Identifier: Apache-2.0
// The flags about what runs: the model, its steps, the schedule, the device.
#include "src/model/config/fields.hpp"
#include "src/model/published/published_models.hpp"
#include "src/support/joined.hpp"
#include "src/support/names_of.hpp"
#include "src/train/options/rule_flags.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/make_schedule.hpp"

#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace {

/// Flags of the model's fields. Those that mean something only once all are read keep their value
/// in `unresolved`.
std::vector<Flag> flags_of_fields(ModelConfig& model, UnresolvedFlags& unresolved,
                                  bool (ModelField::*belongs)() const) {
    UnresolvedFlags& u = unresolved;
    const std::map<std::string_view, FlagValue> kept{
        {"--model-type", &u.model_type},
        {"--swiglu", &u.swiglu},
        {"--normalization", &u.normalization},
        {"--position-embedding-type", &u.positions},
        {"--rotary-percent", &u.rotary_percent},
        {"--moe-layer-freq", &u.moe_layer_freq},
        {"--moe-router-pre-softmax", &u.moe_pre_softmax},
        {"--moe-router-score-function", &u.moe_score},
        {"--moe-router-bias-update-rate", &u.moe_bias_rate},
        {"--untie-embeddings-and-output-weights", &u.untie}};
    std::vector<Flag> flags;
    for (ModelField& field : model_fields(model)) {
        if (field.flag.names.empty() || !(field.*belongs)()) continue;
        const auto value = kept.find(field.flag.names);
        if (value != kept.end()) field.flag.value = value->second;
        if (field.by_family) {
            field.flag.value =
                FlagText{.set = [flag = field.flag](const auto& words) { flag.set(words); },
                         .get = [] { return std::string(); }};
        }
        flags.push_back(std::move(field.flag));
    }
    return flags;
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
    FlagGroup group{
        .title = "Model",
        .flags = {
            {.names = "--model",
             .value = &u.config,
             .help = "Hugging Face config.json, its folder, or a published model: " +
                     joined(published_models()) +
                     "; use it instead of the other flags of this group, but for --vocab-size",
             .unit = "PATH",
             .choices = published_models(),
             .free = true,
             .ranks = RanksCompare::nothing}}};
    for (Flag& flag : flags_of_fields(m, u, &ModelField::is_architecture)) {
        const std::string after = flag.names;
        group.flags.push_back(std::move(flag));
        if (after == "--num-query-groups") {
            group.flags.push_back(
                {.names = "--group-query-attention",
                 .value = &u.group_query_attention,
                 .help =
                     "Megatron's switch; requires --num-query-groups, which has the same effect by "
                     "itself",
                 .ranks = RanksCompare::nothing});
        } else if (after == "--kv-channels") {
            group.flags.push_back(
                {.names = "--multi-latent-attention",
                 .value = &u.multi_latent_attention,
                 .help = "With the parts of mixtral: same as --model-type deepseek_v3",
                 .ranks = RanksCompare::nothing});
        }
    }
    return group;
}

FlagGroup step_flags(TrainOptions& o, UnresolvedFlags& u) {
    // Flags of the step behind those of the model's fields.
    std::map<std::string_view, std::vector<Flag>> others{
        {"--seq-length",
         {{.names = "--micro-batch-size",
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
           .decides = Decides::samples}}},
        {"--dtype",
         {{.names = "--bf16",
           .value = &u.bf16,
           .help = "Same as --dtype bf16",
           .ranks = RanksCompare::nothing}}},
        {"--moe-aux-loss-coeff",
         {{.names = "--moe-router-enable-expert-bias",
           .value = &u.moe_update_bias,
           .help = "Update the correction bias of routers by the load of experts (deepseek_v3, "
                   "dots1)",
           .meaning = [&o] { return std::string(o.model.moe.bias_rate > 0 ? "given" : ""); }}}},
        {"--moe-z-loss-coeff",
         {{.names = "--recompute-granularity",
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
           .ranks = RanksCompare::nothing}}},
    };
    FlagGroup group{.title = "Batch and numerics"};
    for (Flag& flag : flags_of_fields(o.model, u, &ModelField::is_of_run)) {
        const auto behind = others.find(flag.names);
        group.flags.push_back(std::move(flag));
        if (behind != others.end()) {
            std::ranges::move(behind->second, std::back_inserter(group.flags));
        }
    }
    return group;
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
            {.names = "--context-parallel-size",
             .value = &o.context_parallel_size,
             .help =
                 "Ranks that share every sequence: each has a part of its tokens, and attention "
                 "exchanges keys and values",
             .unit = "RANKS",
             .range = at_least(1),
             .decides = Decides::nothing},  // "context-ranks" of a saved step says it
            {.names = "--cp-comm-type",
             .value = FlagText{
                 .set =
                     [&o](const auto& words) { o.context_form = context_form_from(words.back()); },
                 .get = [&o] { return std::string(to_string(o.context_form)); }},
             .help = "What context ranks exchange: keys and values of all tokens, or tokens for "
                     "heads (Ulysses), which the key/value heads limit",
             .unit = "NAME",
             .choices = {"allgather", "a2a"},
             .free = true},  // all_gather, too; of p2p the message says what to use
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
            {.names = "--expert-tensor-parallel-size",
             .value = &o.expert_tensor_parallel_size,
             .help = "Ranks that share each expert, whose feed-forward columns are cut among them; "
                     "so many times --expert-model-parallel-size ranks share the experts of a "
                     "layer",
             .unit = "RANKS",
             .range = at_least(1)},
            {.names = "--moe-row-factor",
             .value = &o.moe_row_factor,
             .help = "Memory for the tokens of a rank's experts, over what they have when all "
                     "experts have equally many; more tokens take more time, not more memory",
             .unit = "FACTOR",
             .range = above(0)},
            {.names = "--zero-stage",
             .value = &o.zero.stage,
             .help = "What each of the ranks that add up the same gradients keeps only its own "
                     "part of: 1 the optimizer's state, 2 gradients of layers, too, 3 their "
                     "weights, too (FSDP)",
             .unit = "STAGE",
             .range = between(1, 3)},
            {.names = "--reshard-after",
             .value = named(&o.zero.reshard_after, reshard_after_from),
             .help = "With --zero-stage 2 and 3: how long weights and gradients of a stage stay "
                     "whole: for consecutive passes that use them, or from the first to the last "
                     "of a step",
             .unit = "NAME",
             .choices = {"use", "step"}},
            {.names = "--gather-ahead",
             .value = &o.zero.gather_ahead,
             .help = "With --zero-stage 3: weights of how many stages may be gathered before their "
                     "passes begin",
             .unit = "STAGES",
             .range = between(0, 1 << 20),
             .decides = Decides::nothing},
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
