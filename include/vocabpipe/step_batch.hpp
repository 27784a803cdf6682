// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/batch_rows.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace vocabpipe {

/// Which microbatch of a step each of its samples is in. `lengths`: [i] tokens of the step's sample
/// i, of all replicas; `per_microbatch`: samples of a microbatch of all replicas together, which
/// have one length. Returns the samples in the order of their places (StepBatch::load()), each
/// once. A pure function: every rank calls it.
using ArrangeSamples =
    std::function<std::vector<int>(std::span<const int64_t> lengths, int64_t per_microbatch)>;

/// Options of a StepBatch.
struct StepBatchOptions {
    int64_t micro_batch_size = 1;  ///< sequences
    int replica = 0;               ///< Mesh::replica() of the rank
    int replicas = 1;              ///< Mesh::data
    int context_rank = 0;          ///< Mesh::Place::context of the rank
    int context = 1;               ///< Mesh::context
    /// For samples of several lengths. Empty: in the order of their numbers.
    ArrangeSamples arrange = {};
    LaterTokens later = {};  ///< of a model with depths; default: none
};

/// The microbatches of one step that a replica trains on, and of every sequence in them the tokens
/// of a context rank. Every rank reads whole sequences: embedding and output shards need every
/// token and every label, and a document may begin on another context rank.
///
/// The loss of a step is sum(w loss) / sum(w) over the labels of all its microbatches and replicas,
/// so g = w / sum(w); without weights that is the mean. Of the other replicas' data only the sum
/// matters: where it depends on the data (SampleForm::weighs_labels), the data are read as well, so
/// that g needs no communication.
///
/// Samples may be of several lengths (SampleSource::length()). A microbatch is as long as its
/// longest sample on any replica, because all replicas run copies of one program; shorter samples
/// are padded with tokens that no loss counts and no token before them sees.
class StepBatch {
public:
    /// `samples` must outlive it.
    StepBatch(const SampleSource& samples, const StepBatchOptions& options);

    /// Makes `microbatches` per replica from the samples from `first_sample` on. Microbatch j of
    /// replica r is microbatch j * replicas + r of the step (Megatron's order), and place i of the
    /// step is in its microbatch i / micro_batch_size. Place i has sample i, or the one that
    /// StepBatchOptions::arrange puts there: which samples a step sees depends on neither p nor d.
    /// `microbatches` may differ from call to call. Throws UsageError if `arrange` does not return
    /// every sample once.
    void load(int64_t first_sample, int microbatches);

    /// Microbatches of this replica.
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return rows_.microbatches(); }
    /// [microbatch] Tokens of its sequences, before context ranks cut them; equal on all replicas.
    [[nodiscard]] std::span<const int64_t> seq_lengths() const { return seq_lengths_; }
    /// Tokens of the samples of all replicas.
    [[nodiscard]] int64_t tokens() const { return tokens_; }
    /// Labels of all replicas that are not ignored, and whose weight is above 0.
    [[nodiscard]] int64_t counted_tokens() const { return counted_tokens_; }
    /// Sum of the weights of those labels: 1 / g of a label of weight 1.
    [[nodiscard]] double weight() const { return weight_; }
    /// A place of the step, as load() numbers them.
    struct Place {
        int replica = 0;         ///< Mesh::replica() of its ranks
        int64_t microbatch = 0;  ///< of the replica
        int64_t sequence = 0;    ///< of the microbatch
    };
    /// The place of a sample of the step, from 0.
    [[nodiscard]] Place place_of(int64_t sample) const;
    /// Sequences of all replicas.
    [[nodiscard]] int64_t global_batch_size() const {
        return options_.micro_batch_size * static_cast<int64_t>(microbatches().size()) *
               options_.replicas;
    }

private:
    /// Sets places_, seq_lengths_ and tokens_.
    void arrange(int64_t first_sample, int microbatches);
    /// Adds the labels of sample_ to those of the step; returns the sum of their weights.
    double count_labels();

    const SampleSource& samples_;
    StepBatchOptions options_;
    bool weighs_labels_;
    BatchRows rows_;
    Sample sample_;  ///< buffer of a whole sequence
    int64_t counted_tokens_ = 0;
    double weight_ = 0;
    int64_t tokens_ = 0;
    std::vector<int64_t> places_;  ///< [sample of the step]
    std::vector<int64_t> seq_lengths_;
};

}  // namespace vocabpipe
