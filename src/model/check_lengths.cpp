// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_lengths.hpp"

#include "src/model/blocks/layer_options.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/rope.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

namespace {

/// Whether the rotary positions of the longest sequences are others than those of shorter ones.
bool positions_depend_on_length(const ModelConfig& config) {
    for (int layer = 0; layer < config.num_layers; ++layer) {
        const std::optional<Rope> rope = rope_of_layer(config, layer);
        const bool follows_length = rope && (rope->scaling == RopeScaling::dynamic ||
                                             rope->scaling == RopeScaling::longrope);
        if (follows_length && config.seq_length > rope->original_positions) return true;
    }
    return false;
}

}  // namespace

void check_lengths(const ModelConfig& config, const ModelPartition& partition) {
    int64_t longer = config.seq_length;
    for (const int64_t length : partition.shorter_lengths) {
        const auto refuse = [&](const std::string& why) {
            throw UsageError("sequences of " + std::to_string(length) + " tokens: " + why);
        };
        if (length < 1 || length >= longer) {
            refuse("lengths must be at least 1 and descend from --seq-length " +
                   std::to_string(config.seq_length));
        }
        longer = length;
        const int64_t segments = partition.context == 1 ? 1 : 2 * int64_t{partition.context};
        if (length % segments != 0) {
            refuse("--context-parallel-size " + std::to_string(partition.context) +
                   " requires a multiple of " + std::to_string(segments));
        }
        const int64_t tokens = partition.micro_batch_size * length / partition.context;
        if (tokens % partition.tensor != 0) {
            refuse("--tensor-model-parallel-size " + std::to_string(partition.tensor) +
                   " must divide the " + std::to_string(tokens) +
                   " tokens of a microbatch; use another length or --micro-batch-size");
        }
    }
    if (partition.shorter_lengths.empty()) return;
    if (positions_depend_on_length(config)) {
        throw UsageError(
            "sequences of several lengths: the rotary positions of this model (rope_type dynamic "
            "or longrope) change with the length; use one length, or a --seq-length within the "
            "trained length");
    }
    if (!partition.stage_bytes.empty()) {
        throw UsageError(
            "sequences of several lengths: the bytes of stages of your own are set for one length "
            "(ModelPartition::stage_bytes); use one length");
    }
}

}  // namespace vocabpipe
