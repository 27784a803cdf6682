// SPDX-License-Identifier: Apache-2.0
// Small models on meshes with tensor ranks.
#pragma once

#include "tests/model/model_cases.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/mesh.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace vocabpipe::testing {

// 4 sequences of 7 tokens: 28 rows, 14 or 7 for each of 2 or 4 tensor ranks, so that the rows of a
// rank begin inside a sequence.
inline constexpr int64_t kTensorSequences = 4;
inline constexpr int64_t kTensorVocabulary = 40;  // rows that any of the meshes divides evenly

inline TrainingSetup tensor_setup(const std::string& schedule, VocabMode mode, Mesh mesh,
                                  const std::string& family, DType dtype, int steps) {
    TrainingSetup setup = setup_on_mesh(schedule, mode, mesh, kTensorVocabulary, [&](int layers) {
        return small_family(family, layers, 7, kTensorVocabulary, false);
    });
    setup.steps = steps;
    setup.sequences = kTensorSequences;
    setup.config.dtype = dtype;
    setup.config.ffn_hidden_size = 32;
    setup.config.num_attention_heads = 4;
    if (setup.config.num_query_groups != 0)
        setup.config.num_query_groups = std::max(2, mesh.tensor);
    return setup;
}

/// Sequences of 8 tokens, so many that the rows of ranks end within them. With three depths it is
/// one, with 2 tokens on each of four ranks: the last depth looks over the next rank's rows.
inline void predict_later_tokens(TrainingSetup& setup, int depths) {
    if (depths == 0) return;
    setup.config.mtp_num_layers = depths;
    setup.config.seq_length = setup.config.max_position_embeddings = 8;
    setup.sequences = depths < 3 ? 3 : 1;
}

/// Those that tensor ranks can share.
inline std::vector<std::string> tensor_families() {
    std::vector<std::string> names;
    for (const std::string& name : model_families()) {
        const ModelConfig config = small_family(name, 2, 7, kTensorVocabulary, false);
        if (config.moe.experts == 0) names.push_back(name);
    }
    return names;
}

}  // namespace vocabpipe::testing
