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

/// Keeps every product of two sizes far inside 64 bits; no real model comes near.
inline constexpr int64_t kLargestSize = int64_t{1} << 24;

/// Heading of the flags that only scripts for Megatron have.
inline constexpr const char* kMegatronGroup = "Read in Megatron's scripts";

/// Flags that scripts for Megatron have, so that such a script starts.
struct MegatronFlags {
    std::string vocab_file;                     // --vocab-file; empty: none
    std::optional<double> timeout_minutes;      // --distributed-timeout-minutes
    bool no_load_optimizer = false;             // --no-load-optim
    bool zero_bubble = false;                   // --enable-zero-bubble
    bool zero_bubble_v = false;                 // --zero-bubble-v-schedule
    std::optional<int> most_pending_backwards;  // --zero-bubble-max-pending-backward
    // Values of flags that set nothing (accepted_flags()), by name. Rows point to them.
    std::map<std::string_view, bool> switches;
    std::map<std::string_view, std::string> values;
    std::map<std::string_view, std::vector<std::string>> lists;
};

/// What flags say that is no option by itself: it is resolved, together, when all are read.
struct UnresolvedFlags {
    std::string config;                    // --model, as named_model() has it; empty: none
    std::string model_type;                // --model-type; empty: as the parts below say
    bool swiglu = false;                   // --swiglu
    std::string normalization, positions;  // --normalization, --position-embedding-type
    bool group_query_attention = false;    // --group-query-attention
    std::optional<float> norm_epsilon;     // --norm-epsilon; none: the family's
    std::optional<double> rotary_base;     // --rotary-base
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

// The table of the flags of a training run, in parts. Values are kept in the arguments, which must
// outlive the rows.

/// What a config.json says, too; the first row is --model, which takes the place of the others.
[[nodiscard]] FlagGroup architecture_flags(ModelConfig& model, UnresolvedFlags& unresolved);
/// What else there is to say of a model and its steps.
[[nodiscard]] FlagGroup step_flags(TrainOptions& options, UnresolvedFlags& unresolved);
[[nodiscard]] FlagGroup schedule_flags(TrainOptions& options);
[[nodiscard]] FlagGroup device_flags(TrainOptions& options);
[[nodiscard]] FlagGroup megatron_flags(MegatronFlags& megatron);
/// Of training alone: data, learning rate, optimizer, evaluation, saved steps, outputs, the end.
[[nodiscard]] std::vector<FlagGroup> training_flags(TrainOptions& options);

/// Lengths in samples, which training alone has.
[[nodiscard]] FlagGroup sample_flags(TrainOptions& options);
/// What a run leaves: saved steps, outputs, where it ends early.
[[nodiscard]] FlagGroup saved_step_flags(TrainOptions& options);
[[nodiscard]] FlagGroup output_flags(TrainOptions& options);
[[nodiscard]] FlagGroup end_flags(TrainOptions& options);
/// Sets TrainOptions::train_iters where the length of the run is in samples. Throws UsageError if
/// they make no step.
void count_steps_of_samples(TrainOptions& options);

// All names that some flags may have.
[[nodiscard]] std::vector<std::string> schedule_names();
[[nodiscard]] std::vector<std::string> vocab_mode_names();
[[nodiscard]] std::vector<std::string> recompute_names();

/// All rows.
[[nodiscard]] std::vector<FlagGroup> train_flags(TrainOptions& options,
                                                 UnresolvedFlags& unresolved);

}  // namespace vocabpipe
