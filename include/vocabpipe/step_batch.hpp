// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/document_masks.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/sample_source.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe {

/// Options of a StepBatch.
struct StepBatchOptions {
    int64_t micro_batch_size = 1;  ///< sequences
    int replica = 0;               ///< Mesh::replica() of the rank
    int replicas = 1;              ///< Mesh::data
    int context_rank = 0;          ///< Mesh::Place::context of the rank
    int context = 1;               ///< Mesh::context
    DocumentMasks masks = {};      ///< none
};

/// The microbatches of one step that a replica trains on, and of every sequence in them the tokens
/// of a context rank. Every rank reads whole sequences: embedding and output shards need every
/// token and every label, and a document may begin on another context rank. Of the other replicas'
/// data only the number of counted labels matters; where masks make it depend on the data, the data
/// are read as well, so that the loss's gradient factors need no communication.
class StepBatch {
public:
    /// `samples` must outlive it.
    StepBatch(const SampleSource& samples, const StepBatchOptions& options);

    /// Makes `microbatches` per replica from the samples from `first_sample` on. Microbatch j of
    /// replica r is microbatch j * replicas + r of the step (Megatron's order), and sample i of the
    /// step is in its microbatch i / micro_batch_size: which samples a step sees depends on neither
    /// p nor d. `microbatches` may differ from call to call.
    void load(int64_t first_sample, int microbatches);

    /// Microbatches of this replica.
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    /// Labels of all replicas that are not ignored.
    [[nodiscard]] int64_t counted_tokens() const { return counted_tokens_; }
    /// Sequences of all replicas.
    [[nodiscard]] int64_t global_batch_size() const {
        return options_.micro_batch_size * static_cast<int64_t>(microbatches_.size()) *
               options_.replicas;
    }

private:
    void set_microbatches(int microbatches);
    /// Microbatch j of this replica from sample `first` on; returns how many labels count, on all
    /// context ranks together.
    int64_t fill(int j, int64_t first);
    /// Counts the labels of a microbatch of another replica, whose samples begin at `first`.
    [[nodiscard]] int64_t count(int64_t first);

    const SampleSource& samples_;
    StepBatchOptions options_;
    ContextCut cut_;
    std::vector<int32_t> tokens_, labels_;  ///< all microbatches, one after the other
    std::vector<float> loss_gradient_;
    std::vector<int32_t> first_visible_;  ///< empty unless documents are separate
    // Buffers of a whole sequence.
    std::vector<int32_t> sample_;  ///< its tokens, and what follows them
    std::vector<int32_t> sample_labels_, sample_starts_;
    std::vector<Microbatch> microbatches_;
    int64_t counted_tokens_ = 0;
};

}  // namespace vocabpipe
