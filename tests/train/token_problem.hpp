// SPDX-License-Identifier: Apache-2.0
// Log-probabilities of all tokens of the vocabulary, from a model in double.
#pragma once

#include "tests/model/fp64_model.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vocabpipe::testing {

/// The same tokens in a microbatch of their own, without labels.
inline void add_question(const Batch& batch, size_t microbatch, Batch& questions) {
    const std::vector<int32_t>& tokens = batch.tokens[microbatch];
    questions.tokens.push_back(tokens);
    questions.labels.emplace_back(tokens.size(), -1);
    questions.loss_gradient.emplace_back(tokens.size(), 0.0F);
}

/// [microbatch N + token][id] log p: by asking for the loss of every id at every position.
[[nodiscard]] inline std::vector<std::vector<double>> log_probabilities(const ModelConfig& config,
                                                                        const Batch& batch,
                                                                        const Tensors& weights) {
    Batch questions{.sequences = batch.sequences, .seq_length = batch.seq_length};
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        for (size_t n = 0; n < batch.tokens[j].size(); ++n) {
            for (int32_t id = 0; id < config.vocab_size; ++id) {
                add_question(batch, j, questions);
                questions.labels.back()[n] = id;
                questions.loss_gradient.back()[n] = 1;
            }
        }
    }
    const std::vector<double> losses = fp64_step(config, questions, weights).losses;
    std::vector<std::vector<double>> found;
    for (size_t at = 0; at < losses.size(); at += static_cast<size_t>(config.vocab_size)) {
        found.emplace_back();
        for (int64_t id = 0; id < config.vocab_size; ++id) {
            found.back().push_back(-losses[at + static_cast<size_t>(id)]);
        }
    }
    return found;
}

}  // namespace vocabpipe::testing
