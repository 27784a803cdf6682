// SPDX-License-Identifier: Apache-2.0
// Models that nobody designed, written as one function: random operations on random values of all
// layers before, with losses at random places, shared weights, and results.
#pragma once

#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe::testing {

inline constexpr int64_t kRandomColumns = 6;  ///< of the data that a random model may read
inline constexpr int32_t kRandomClasses = 5;  ///< labels are below

/// A model, and what it computes.
struct RandomGraph {
    ModelConfig config;
    std::string description;  ///< one value per line
    int results = 0;          ///< named r0, r1, ...
};

/// The model of this seed: 1 to `most_layers` layers. Its type is fp32.
[[nodiscard]] RandomGraph random_graph(uint64_t seed, int most_layers);

/// Random data of a step: several documents in a sequence, some labels that do not count, and a
/// weight of its own for every other one.
class RandomGraphBatch {
public:
    RandomGraphBatch(const ModelConfig& config, int microbatches, int64_t sequences, uint64_t seed);
    [[nodiscard]] std::span<const Microbatch> microbatches() const { return microbatches_; }
    [[nodiscard]] int64_t counted() const { return counted_; }

private:
    std::vector<int32_t> tokens_, labels_, first_visible_;
    std::vector<float> weights_, columns_;
    std::vector<Microbatch> microbatches_;
    int64_t counted_ = 0;
};

}  // namespace vocabpipe::testing
