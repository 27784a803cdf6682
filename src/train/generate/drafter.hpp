// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/model/key_value_cache.hpp"
#include "src/model/logits_layer.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/train/generate/forward.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/model_rank.hpp"
#include "vocabpipe/text_generator.hpp"
#include "vocabpipe/world.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

/// Drafts tokens with the depths of multi-token prediction of a model that generates text.
///
/// The model has read tokens 0 .. n-1 and predicts token n from h^0_{n-1}. Depth k = 1 .. D makes
/// h^k_i of h^{k-1}_i and token i + k (PredictingStage), and h^k_i predicts token i + k + 1. So in
/// row n-1 depth 1 reads token n and drafts token n+1, depth 2 reads that draft and drafts token
/// n+2, and depth k reads token n+k-1 and drafts token n+k:
///
///     row i             0    1    ..  n-1
///     the model reads   0    1    ..  n-1      predicts token n
///     depth k reads     k    k+1  ..  n+k-1    drafts token n+k
///
/// The layer of depth k has keys and values of its own, of every row of h^k. Before depth k drafts
/// from row n-1, it runs all rows that it has not run: at first those of the prompt, later those of
/// tokens that the model has read meanwhile, and its own of drafts that were wrong. h^0 .. h^{D-1}
/// are therefore kept for the whole context, on the rank of the last stage.
///
/// Row i of depth k depends on tokens 0 .. i+k. So when the model has read tokens 0 .. m-1, rows i
/// < m-k are right whatever was drafted, and keep() drops those after them.
class Drafter {
public:
    /// `output`: null without rows of the vocabulary. `last`: whether this rank has the last stage.
    /// All references must outlive it. Collective; AgreedError.
    Drafter(Communicator& world, Device& device, ModelRank& model, const ModelPartition& partition,
            LogitsLayer* output, const RotaryTables& rotary, const TextGeneratorOptions& options,
            bool last, const std::string& owner);

    /// Bytes of keys, values and hidden rows on the rank of the last stage.
    [[nodiscard]] static int64_t bytes(const TextGeneratorOptions& options);

    /// (positions, h): where the model's last stage keeps its output h^0; empty on other ranks.
    [[nodiscard]] Tensor model_output() const { return hidden_.front(); }

    /// At most `most` and at most D tokens that may follow `tokens`: those of the context, all but
    /// the last of which the model has read; at least two. Collective.
    [[nodiscard]] std::vector<int32_t> draft(std::span<const int32_t> tokens, int64_t most);
    /// Only the first `read` tokens that the model has read are part of the text.
    void keep(int64_t read);
    /// Forgets the text.
    void clear();
    /// Forgets the logits of earlier drafts.
    void clear_logits() {
        for (std::vector<float>& of_depth : logits_) of_depth.clear();
    }

    /// This rank's logits of the tokens of the last draft(), by depth.
    [[nodiscard]] const std::vector<std::vector<float>>& logits() const { return logits_; }

private:
    /// Runs the rows of depth k that it has not run, up to row n-1, in which it reads the last of
    /// `tokens`.
    void run(int k, std::span<const int32_t> tokens, int64_t n);
    [[nodiscard]] std::unique_ptr<Forward> program(int k, int64_t rows);
    [[nodiscard]] KeyValueCache& cache(int k) { return caches_[static_cast<size_t>(k) - 1]; }

    Communicator& world_;
    ModelRank& model_;
    const ModelPartition& partition_;
    LogitsLayer* output_;
    const RotaryTables& rotary_;
    TextGeneratorOptions options_;
    std::vector<KeyValueCache> caches_;  ///< [k - 1]; on other ranks they only count
    DeviceMemory memory_;                ///< of hidden_
    std::vector<Tensor> hidden_;         ///< [k < D] h^k (positions, h); empty on other ranks
    std::map<std::pair<int, int64_t>, std::unique_ptr<Forward>> programs_;  ///< by k and a few rows
    std::vector<std::vector<float>> logits_;
};

}  // namespace vocabpipe
