// SPDX-License-Identifier: Apache-2.0
// Small models on meshes with context ranks.
#pragma once

#include "tests/model/model_cases.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/mesh.hpp"

#include <cstdint>
#include <string>

namespace vocabpipe::testing {

inline constexpr int64_t kContextSequences = 2;
inline constexpr int64_t kContextVocabulary = 40;  // rows that any of the meshes divides evenly
inline constexpr int64_t kContextLength = 24;  // segments of 6, 4 or 3 tokens for 2, 3 or 4 ranks

inline TrainingSetup context_setup(const std::string& schedule, VocabMode mode, Mesh mesh,
                                   const std::string& family, DType dtype, int steps) {
    TrainingSetup setup = setup_on_mesh(schedule, mode, mesh, kContextVocabulary, [&](int layers) {
        return small_family(family, layers, kContextLength, kContextVocabulary, false);
    });
    setup.steps = steps;
    setup.sequences = kContextSequences;
    setup.config.dtype = dtype;
    setup.config.ffn_hidden_size = 32;
    setup.config.num_attention_heads = 4 * mesh.tensor;
    if (setup.config.num_query_groups != 0) setup.config.num_query_groups = 2 * mesh.tensor;
    return setup;
}

/// One rank has the whole sequences.
inline TrainingSetup with_whole_sequences(TrainingSetup setup) {
    setup.context = 1;
    return setup;
}

}  // namespace vocabpipe::testing
