// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/flag.hpp"
#include "src/train/options/train_options.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Limit of sizes: keeps every product of two far inside 64 bits; no real model comes near.
inline constexpr int64_t kLargestSize = int64_t{1} << 24;

/// Heading of the flags that exist only for Megatron's scripts.
inline constexpr const char* kMegatronGroup = "Read in Megatron's scripts";

/// Flags accepted so that Megatron's scripts start.
struct MegatronFlags {
    std::string vocab_file;                     // --vocab-file; empty: none
    std::optional<double> timeout_minutes;      // --distributed-timeout-minutes
    bool no_load_optimizer = false;             // --no-load-optim
    bool zero_bubble = false;                   // --enable-zero-bubble
    bool zero_bubble_v = false;                 // --zero-bubble-v-schedule
    std::optional<int> most_pending_backwards;  // --zero-bubble-max-pending-backward
    std::string sharding_strategy;              // --data-parallel-sharding-strategy; empty: none
    // Values of flags that set nothing (accepted_flags()), by name; rows point to them.
    std::map<std::string_view, bool> switches;
    std::map<std::string_view, std::string> values;
    std::map<std::string_view, std::vector<std::string>> lists;
};

/// Flags that are no option by themselves: they are resolved together after all are read.
struct UnresolvedFlags {
    std::string config;                    // --model, as named_model() has it; empty: none
    std::string model_type;                // --model-type; empty: as the parts below say
    bool swiglu = false;                   // --swiglu
    std::string normalization, positions;  // --normalization, --position-embedding-type
    bool group_query_attention = false;    // --group-query-attention
    bool multi_latent_attention = false;   // --multi-latent-attention
    std::optional<double> rotary_percent;  // --rotary-percent
    std::string moe_layer_freq;            // --moe-layer-freq; empty: all layers
    bool moe_pre_softmax = false;          // --moe-router-pre-softmax
    std::string moe_score;                 // --moe-router-score-function; empty: the family's
    bool moe_update_bias = false;          // --moe-router-enable-expert-bias
    std::optional<float> moe_bias_rate;    // --moe-router-bias-update-rate
    bool untie = false;                    // --untie-embeddings-and-output-weights
    bool bf16 = false;                     // --bf16
    bool recompute_activations = false;    // --recompute-activations
    MegatronFlags megatron;
};

// The table of the flags of a training run, in parts. The rows keep values in the arguments, which
// must outlive them.

/// The keys of a config.json as flags; the first row, --model, replaces the others.
[[nodiscard]] FlagGroup architecture_flags(ModelConfig& model, UnresolvedFlags& unresolved);
/// Further flags of a model and its steps.
[[nodiscard]] FlagGroup step_flags(TrainOptions& options, UnresolvedFlags& unresolved);
[[nodiscard]] FlagGroup schedule_flags(TrainOptions& options);
[[nodiscard]] FlagGroup device_flags(TrainOptions& options);
[[nodiscard]] FlagGroup megatron_flags(MegatronFlags& megatron);
/// For training only: data, learning rate, optimizer, evaluation, saved steps, outputs, the end.
[[nodiscard]] std::vector<FlagGroup> training_flags(TrainOptions& options);

/// Lengths in samples, for training only.
[[nodiscard]] FlagGroup sample_flags(TrainOptions& options);
/// What is minimised.
[[nodiscard]] FlagGroup loss_flags(TrainingLoss& loss);
/// Results of a run: saved steps, outputs, ways to end early.
[[nodiscard]] FlagGroup saved_step_flags(TrainOptions& options);
[[nodiscard]] FlagGroup output_flags(TrainOptions& options);
[[nodiscard]] FlagGroup verification_flags(TrainOptions& options);
[[nodiscard]] FlagGroup end_flags(TrainOptions& options);
/// Sets TrainOptions::train_iters if the length of the run is given in samples. UsageError if they
/// are fewer than one step.
void count_steps_of_samples(TrainOptions& options);

// All names that these flags accept.
[[nodiscard]] std::vector<std::string> schedule_names();
[[nodiscard]] std::vector<std::string> vocab_mode_names();
[[nodiscard]] std::vector<std::string> recompute_names();

/// All rows.
[[nodiscard]] std::vector<FlagGroup> train_flags(TrainOptions& options,
                                                 UnresolvedFlags& unresolved);

}  // namespace vocabpipe
