// SPDX-License-Identifier: Apache-2.0
#include "src/train/options/megatron_table.hpp"

#include "src/support/parse_number.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace vocabpipe {

namespace {

constexpr std::string_view kFusions = "results are the same, fused or not";
constexpr std::string_view kModels = "models are this program's";
constexpr std::string_view kTokens = "data are tokens already";
constexpr std::string_view kLogs = "the log has its own columns";
constexpr std::string_view kBoard = "TensorBoard gets its own set of numbers";
constexpr std::string_view kPython = "there is no Python whose garbage is collected";
constexpr std::string_view kNsys = "--trace-dir traces the last step instead";
constexpr std::string_view kLossScale = "the loss is scaled for fp16 alone";
constexpr std::string_view kWandb = "nothing is sent; use --metrics or --tensorboard-dir";
constexpr std::string_view kMeasured = "--schedule-costs auto measures the first steps instead";
constexpr std::string_view kRecomputed = "--recompute-granularity counts for all layers";
constexpr std::string_view kDropout = "there is no dropout";
constexpr std::string_view kNoDropout = "there is no dropout; use 0.0";

bool has_no_biases(const ModelConfig& m) {
    return !m.mlp_bias && !m.attention_output_bias;
}

constexpr auto kAccepted = std::to_array<AcceptedFlag>({
    // The model.
    {.name = "--use-mcore-models", .why = kModels},
    {.name = "--use-legacy-models", .why = kModels},
    {.name = "--disable-bias-linear",
     .why = "only gpt2 and gpt_neox have such biases",
     .remedy = "has biases; remove the flag, or use a --model-type without them, such as llama",
     .holds = has_no_biases},
    {.name = "--add-qkv-bias",
     .why = "the family says whether there are such biases",
     .remedy = "has no biases of q, k and v; remove the flag, or use a --model-type with them, "
               "such as qwen2",
     .holds = [](const ModelConfig& m) { return m.qkv_bias; }},
    {.name = "--no-position-embedding",
     .why = "the old way to ask for no learned positions",
     .remedy = "has learned positions; use --position-embedding-type rope",
     .holds = [](const ModelConfig& m) { return !m.learned_positions; }},
    {.name = "--attention-dropout",
     .why = kDropout,
     .takes = Takes::word,
     .unit = "X",
     .only = "0",
     .remedy = kNoDropout},
    {.name = "--hidden-dropout",
     .why = kDropout,
     .takes = Takes::word,
     .unit = "X",
     .only = "0",
     .remedy = kNoDropout},
    {.name = "--transformer-impl",
     .why = "there is one for each device",
     .takes = Takes::word,
     .unit = "NAME"},
    {.name = "--attention-backend",
     .why = "there is one for each device",
     .takes = Takes::word,
     .unit = "NAME"},
    {.name = "--use-flash-attn", .why = "attention never keeps its scores"},
    {.name = "--no-masked-softmax-fusion", .why = kFusions},
    {.name = "--no-bias-gelu-fusion", .why = kFusions},
    {.name = "--no-bias-swiglu-fusion", .why = kFusions},
    {.name = "--no-bias-dropout-fusion", .why = kFusions},
    {.name = "--no-rope-fusion", .why = kFusions},
    {.name = "--no-gradient-accumulation-fusion", .why = kFusions},
    {.name = "--cross-entropy-loss-fusion", .why = kFusions},
    {.name = "--moe-grouped-gemm", .why = "products of experts are always grouped"},
    {.name = "--moe-permute-fusion", .why = kFusions},
    {.name = "--moe-per-layer-logging", .why = kLogs},
    {.name = "--moe-token-dispatcher-type",
     .why = "tokens always go to the ranks of their experts",
     .takes = Takes::word,
     .unit = "NAME"},
    {.name = "--moe-router-load-balancing-type",
     .why = "--moe-aux-loss-coeff weighs the one loss there is",
     .takes = Takes::word,
     .unit = "NAME",
     .only = "aux_loss",
     .remedy = "experts are balanced by aux_loss; use it, with --moe-aux-loss-coeff 0 for none"},
    {.name = "--moe-router-dtype",
     .why = "scores are always fp32",
     .takes = Takes::word,
     .unit = "NAME",
     .only = "fp32",
     .remedy = "scores of routers are fp32; use fp32"},

    // Steps and numerics.
    {.name = "--optimizer",
     .why = "AdamW is the only one",
     .takes = Takes::word,
     .unit = "NAME",
     .only = "adam",
     .remedy = "AdamW is the only one; use adam"},
    {.name = "--accumulate-allreduce-grads-in-fp32", .why = "gradients are added up in fp32"},
    {.name = "--calculate-per-token-loss", .why = "a step's loss is the mean over its tokens"},
    {.name = "--initial-loss-scale", .why = kLossScale, .takes = Takes::word, .unit = "X"},
    {.name = "--min-loss-scale", .why = kLossScale, .takes = Takes::word, .unit = "X"},
    {.name = "--loss-scale-window", .why = kLossScale, .takes = Takes::word, .unit = "N"},
    {.name = "--hysteresis", .why = kLossScale, .takes = Takes::word, .unit = "N"},
    {.name = "--recompute-method", .why = kRecomputed, .takes = Takes::word, .unit = "NAME"},
    {.name = "--recompute-num-layers", .why = kRecomputed, .takes = Takes::word, .unit = "N"},
    {.name = "--enable-optimizer-post-validation",
     .why = "updates wait for the global gradient norm"},
    {.name = "--enable-exactly-numeric-match", .why = "a run has the same bits each time"},

    // Ranks.
    {.name = "--sequence-parallel", .why = "tensor ranks always cut what is between layers"},
    {.name = "--use-distributed-optimizer",
     .why = "replicas always share the optimizer's work and state"},
    {.name = "--use-megatron-fsdp", .why = "--data-parallel-sharding-strategy says what is shared"},
    {.name = "--overlap-grad-reduce", .why = "gradients are added up beside remaining passes"},
    {.name = "--overlap-param-gather", .why = "updated weights travel bucket by bucket"},
    {.name = "--no-overlap-p2p-communication", .why = "messages overlap wherever they can"},
    {.name = "--tp-comm-overlap", .why = "--tile-pieces chooses it here"},
    {.name = "--distributed-backend",
     .why = "--device and --transport choose it here",
     .takes = Takes::word,
     .unit = "NAME"},
    {.name = "--zero-bubble-pipeline-timers-start-iter",
     .why = kMeasured,
     .takes = Takes::word,
     .unit = "STEP"},
    {.name = "--zero-bubble-pipeline-timers-end-iter",
     .why = kMeasured,
     .takes = Takes::word,
     .unit = "STEP"},

    // Data.
    {.name = "--tokenizer-type", .why = kTokens, .takes = Takes::word, .unit = "NAME"},
    {.name = "--tokenizer-model",
     .why = "data are tokens already; --vocab-size says how many there are",
     .takes = Takes::word,
     .unit = "FILE"},
    {.name = "--tiktoken-pattern", .why = kTokens, .takes = Takes::word, .unit = "NAME"},
    {.name = "--merge-file", .why = kTokens, .takes = Takes::word, .unit = "FILE"},
    {.name = "--data-impl",
     .why = "--data-format chooses it here",
     .takes = Takes::word,
     .unit = "NAME"},
    {.name = "--data-cache-path",
     .why = "the order of samples is computed, not cached",
     .takes = Takes::word,
     .unit = "FOLDER"},
    {.name = "--num-workers",
     .why = "the next batch is always read ahead",
     .takes = Takes::word,
     .unit = "N"},
    {.name = "--no-create-attention-mask-in-dataloader", .why = "no mask is made"},
    {.name = "--no-mmap-bin-files", .why = "how files are read changes nothing"},

    // Saved steps.
    {.name = "--ckpt-format",
     .why = "saved steps are Hugging Face folders",
     .takes = Takes::word,
     .unit = "NAME"},
    {.name = "--no-load-rng", .why = "nothing is random but --seed's order and first weights"},
    {.name = "--no-save-rng", .why = "nothing is random but --seed's order and first weights"},

    // Logs.
    {.name = "--log-throughput", .why = "tokens/s are in every line"},
    {.name = "--log-progress", .why = kLogs},
    {.name = "--log-params-norm", .why = kLogs},
    {.name = "--log-num-zeros-in-grad", .why = kLogs},
    {.name = "--timing-log-level", .why = kLogs, .takes = Takes::word, .unit = "N"},
    {.name = "--log-timers-to-tensorboard", .why = kBoard},
    {.name = "--log-batch-size-to-tensorboard", .why = kBoard},
    {.name = "--log-memory-to-tensorboard", .why = kBoard},
    {.name = "--log-validation-ppl-to-tensorboard", .why = kBoard},
    {.name = "--log-world-size-to-tensorboard", .why = kBoard},
    {.name = "--tensorboard-queue-size", .why = kBoard, .takes = Takes::word, .unit = "N"},
    {.name = "--wandb-project", .why = kWandb, .takes = Takes::word, .unit = "NAME"},
    {.name = "--wandb-exp-name", .why = kWandb, .takes = Takes::word, .unit = "NAME"},
    {.name = "--wandb-entity", .why = kWandb, .takes = Takes::word, .unit = "NAME"},
    {.name = "--wandb-save-dir", .why = kWandb, .takes = Takes::word, .unit = "FOLDER"},
    {.name = "--profile-step-start", .why = kNsys, .takes = Takes::word, .unit = "STEP"},
    {.name = "--profile-step-end", .why = kNsys, .takes = Takes::word, .unit = "STEP"},
    {.name = "--profile-ranks", .why = kNsys, .takes = Takes::words, .unit = "RANK"},
    {.name = "--no-barrier-with-level-1-timing", .why = "timing adds no barriers"},
    {.name = "--manual-gc", .why = kPython},
    {.name = "--manual-gc-interval", .why = kPython, .takes = Takes::word, .unit = "N"},
    {.name = "--empty-unused-memory-level",
     .why = "memory is planned and allocated once",
     .takes = Takes::word,
     .unit = "N"},
});

constexpr std::string_view kNoFp8 =
    "there is no fp8; remove all flags that begin with --fp8, and use --bf16";
constexpr std::string_view kNothingDropped = "no token is dropped; remove the flag";

constexpr auto kRefused = std::to_array<RefusedFlag>({
    {"--fp16", "there is no fp16; use --bf16"},
    {"--fp8-format", kNoFp8},
    {"--fp8-amax-history-len", kNoFp8},
    {"--fp8-amax-compute-algo", kNoFp8},
    {"--fp8-param-gather", kNoFp8},
    {"--apply-layernorm-1p", "norms keep their scale itself, not scale - 1; remove the flag"},
    {"--qk-layernorm", "the family says it; use --model-type qwen3 or qwen3_moe"},
    {"--decoupled-lr", "use --param-group 'PATTERN:lr_mult=X' for embedding and output layer"},
    {"--decoupled-min-lr",
     "the rate of a --param-group falls to lr_mult times --min-lr; remove it"},
    {"--grad-reduce-in-bf16", "gradients are added up in fp32; remove the flag"},
    {"--mock-data", "data are not made up; use --data-path, made by vocabpipe data prepare"},
    {"--make-vocab-size-divisible-by", "the vocabulary is not padded; remove the flag"},
    {"--no-save-optim", "steps are saved whole; vocabpipe checkpoint convert keeps weights alone"},
    {"--moe-expert-capacity-factor", kNothingDropped},
    {"--moe-pad-expert-input-to-capacity", kNothingDropped},
    {"--moe-token-drop-policy", kNothingDropped},
    {"--moe-input-jitter-eps", "routers read tokens without noise; remove the flag"},
});

constexpr auto kDefaults = std::to_array<MegatronDefault>({
    {.flag = "--adam-beta2", .there = "0.999"},
    {.flag = "--weight-decay", .there = "0.01"},
    {.flag = "--lr-decay-style", .there = "linear"},
    {.flag = "--attention-dropout", .there = "0.1"},
    {.flag = "--hidden-dropout", .there = "0.1"},
    {.flag = "--pipeline-model-parallel-size", .there = "1"},
    {.flag = "--norm-epsilon", .there = "1e-05", .of_model = true},
    {.flag = "--rotary-base",
     .there = "10000",
     .of_model = true,
     .counts = [](const ModelConfig& m) { return !m.learned_positions; }},
    {.flag = "--disable-bias-linear",
     .there = "biases",
     .of_model = true,
     .here = [](const ModelConfig&) { return std::string_view("no biases"); },
     .counts = has_no_biases},
});

}  // namespace

std::span<const AcceptedFlag> accepted_flags() {
    return kAccepted;
}

std::span<const RefusedFlag> refused_flags() {
    return kRefused;
}

std::span<const MegatronDefault> megatron_defaults() {
    return kDefaults;
}

bool may_be(const AcceptedFlag& flag, std::string_view value) {
    if (flag.only.empty() || value == flag.only) return true;
    const std::optional<double> only = parse_flag_number<double>(flag.only);
    return only && parse_flag_number<double>(value) == only;
}

std::string refusal_of(std::string_view name) {
    const auto found = std::ranges::find(kRefused, name, &RefusedFlag::name);
    return found == kRefused.end() ? "" : std::string(found->why);
}

}  // namespace vocabpipe
