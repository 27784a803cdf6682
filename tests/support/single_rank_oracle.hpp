// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/model_rank.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A batch that every rank can make by itself.
struct Batch {
    int64_t sequences = 1;  ///< per microbatch
    int64_t seq_length = 1;
    /// [microbatch] tokens (N), labels and loss_gradient (P N), P =
    /// ModelConfig::predicted_tokens().
    std::vector<std::vector<int32_t>> tokens, labels;
    std::vector<std::vector<float>> loss_gradient;
    int64_t counted_tokens = 0;
    std::vector<std::vector<int32_t>> first_visible = {};  ///< [microbatch], or empty: no mask
    /// [microbatch] Microbatch::loss_weight, or empty: sums of loss_gradient.
    std::vector<double> loss_weights = {};
    /// [microbatch] Microbatch::columns, or empty: none. The oracle has no loss that reads them.
    std::vector<std::vector<float>> columns = {};

    /// Empty without a mask.
    [[nodiscard]] std::span<const int32_t> first_visible_of(size_t microbatch) const {
        if (first_visible.empty()) return {};
        return first_visible[microbatch];
    }
    [[nodiscard]] std::vector<Microbatch> microbatches() const;
};

/// Random tokens and labels, about `ignored` of the labels ignored; g = 1 / counted tokens. Labels
/// of later tokens are those of the next token, shifted.
[[nodiscard]] Batch random_batch(const ModelConfig& config, int microbatches, int64_t sequences,
                                 uint32_t seed, double ignored = 0.2);

/// Appends labels of the depths of multi-token prediction, and their g, to a batch without them.
void add_later_labels(const ModelConfig& config, Batch& batch);

/// Cuts every sequence into documents of random lengths from one token on, about 3 in the mean.
void cut_into_documents(Batch& batch, uint32_t seed);

/// Gradient of every logical tensor, whole, by name ("transformer.wte.weight (output)" is the
/// output side of a tied weight), and the loss of every microbatch.
struct Gradients {
    std::map<std::string, std::vector<float>> by_name;
    std::vector<double> losses;
    std::vector<double> depth_losses = {};  ///< OutputLayer::depth_losses()
};

/// One process computes everything: each microbatch through all stages, the output shards of
/// `schedule` one after the other, partial sums added in rank order, weight gradients accumulated
/// in the order in which the schedule's ranks do it. No lowering, no executor, no transport.
[[nodiscard]] Gradients run_single_rank(const ModelConfig& config, const ModelPartition& partition,
                                        const Schedule& schedule, const Batch& batch,
                                        uint64_t seed);
/// The same on another device than the host.
[[nodiscard]] Gradients run_single_rank(const ModelConfig& config, ModelPartition partition,
                                        const Schedule& schedule, const Batch& batch, uint64_t seed,
                                        Device& device);

}  // namespace vocabpipe::testing
