// SPDX-License-Identifier: Apache-2.0
// Small models with experts on meshes with expert ranks.
#pragma once

#include "tests/model/tensor_models.hpp"
#include "tests/train/training_run.hpp"
#include "vocabpipe/mesh.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace vocabpipe::testing {

// 4 sequences of 8 tokens: what a rank of up to 4 tensor ranks routes begins inside a sequence.
inline constexpr int64_t kExpertSequences = 4;
inline constexpr int64_t kExpertVocabulary = 40;  // rows that any of the meshes divides evenly

inline ModelConfig expert_model(const std::string& family, int layers, DType dtype) {
    ModelConfig config;
    for (const ModelConfig& model : expert_models()) {
        if (model.family == family) config = model;
    }
    config.num_layers = layers;
    config.vocab_size = kExpertVocabulary;
    config.dtype = dtype;
    config.moe.aux_loss = 0.02F;
    config.moe.z_loss = 0.01F;
    if (config.moe.correction_bias) config.moe.bias_rate = 0.01F;
    if (config.moe.sparse.empty()) return config;
    config.moe.sparse.assign(static_cast<size_t>(layers), true);
    config.moe.sparse.front() = false;
    return config;
}

/// `expert_tensor` neighbors among the mesh's expert ranks share each expert.
inline TrainingSetup expert_setup(const std::string& schedule, VocabMode mode, const Mesh& mesh,
                                  const std::string& family, DType dtype, int steps,
                                  int expert_tensor = 1) {
    TrainingSetup setup = setup_on_mesh(schedule, mode, mesh, kExpertVocabulary, [&](int layers) {
        return expert_model(family, layers, dtype);
    });
    setup.expert_tensor = expert_tensor;
    setup.steps = steps;
    setup.sequences = kExpertSequences;
    return setup;
}

/// Losses, norms and what routers did are those of `alone`, within rounding.
inline void expect_follows(const Training& together, const Training& alone, double tolerance) {
    ASSERT_EQ(together.losses.size(), alone.losses.size());
    for (size_t step = 0; step < alone.losses.size(); ++step) {
        SCOPED_TRACE(step);
        EXPECT_NEAR(together.losses[step], alone.losses[step], tolerance);
        EXPECT_NEAR(together.grad_norms[step] / alone.grad_norms[step], 1, 5 * tolerance);
        ASSERT_EQ(together.depth_losses[step].size(), alone.depth_losses[step].size());
        for (size_t k = 0; k < alone.depth_losses[step].size(); ++k) {
            EXPECT_NEAR(together.depth_losses[step][k], alone.depth_losses[step][k], tolerance);
        }
        ASSERT_TRUE(together.routers[step] && alone.routers[step]);
        EXPECT_NEAR(together.routers[step]->aux_loss, alone.routers[step]->aux_loss, tolerance);
        EXPECT_NEAR(together.routers[step]->z_loss, alone.routers[step]->z_loss, tolerance);
        EXPECT_NEAR(together.routers[step]->max_load, alone.routers[step]->max_load, tolerance);
    }
}

}  // namespace vocabpipe::testing
