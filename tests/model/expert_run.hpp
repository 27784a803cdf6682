// SPDX-License-Identifier: Apache-2.0
// The feed-forward part of a layer with experts on the members of a team, without the rest of a
// stage.
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/tile_link.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// Two microbatches of every member, one after the other, forwards and backwards.
struct ExpertRun {
    ModelConfig config;
    int layer = 1;
    int64_t tokens = 0;     ///< n, of a microbatch
    int ranks = 1;          ///< e
    int expert_tensor = 1;  ///< x
    int pieces = 1;         ///< K
    int panels = 1;         ///< P
    double row_factor = 1.25;
    Recompute recompute = Recompute::none;
    bool split = false;  ///< I, then W; else B
    /// What is added to the logits of these experts, so that most tokens or all choose them.
    std::map<int, float> favorites = {};
};

/// Bytes that a member asks for.
struct ExpertBytes {
    int64_t saved = 0, recomputed = 0, gradients = 0, scratch = 0;
    friend bool operator==(const ExpertBytes&, const ExpertBytes&) = default;
};

/// What one member is given and makes.
struct ExpertResults {
    std::vector<std::vector<float>> x, residual, dy;      ///< [microbatch] (n, h)
    std::map<std::string, std::vector<float>> weights;    ///< of its parameters
    std::map<std::string, std::vector<int64_t>> places;   ///< of these in the logical tensors
    std::vector<std::vector<float>> y, dx;                ///< [microbatch] (n, h)
    std::map<std::string, std::vector<float>> gradients;  ///< of its parameters
    ExpertBytes bytes;
    friend bool operator==(const ExpertResults&, const ExpertResults&) = default;
};

/// Runs the microbatches of one member. Fails the test where memory beyond what the block asks for
/// is written, or a recomputation makes other bits than the forward.
[[nodiscard]] ExpertResults run_member(const ExpertRun& run, TileLink& link);
/// Runs those of all `run.ranks` members on a rank that has all experts: y and dx by microbatch,
/// those of member 0 first of each.
[[nodiscard]] ExpertResults run_alone(const ExpertRun& run);

/// Runs all members on threads that meet in a SerialTeam, or through tile links of a world.
[[nodiscard]] std::vector<ExpertResults> run_serially(const ExpertRun& run);
[[nodiscard]] std::vector<ExpertResults> run_with_links(const ExpertRun& run);

/// Puts rows of microbatches in the order of run_alone(), joins gradients of experts and adds up
/// the others.
[[nodiscard]] ExpertResults put_together(const std::vector<ExpertResults>& members);

}  // namespace vocabpipe::testing
