// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/plan/candidates.hpp"
#include "vocabpipe/plan.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace vocabpipe::testing {

/// A GPT small enough to evaluate in milliseconds, with a vocabulary that matters.
inline PlannedModel small_gpt() {
    return {.name = "small",
            .config = {.num_layers = 8,
                       .hidden_size = 1024,
                       .ffn_hidden_size = 4096,
                       .num_attention_heads = 16,
                       .max_position_embeddings = 2048,
                       .vocab_size = 64000,
                       .tied = false}};
}

inline PlanOptions small_plan() {
    PlanOptions options;
    options.model = small_gpt();
    options.device = load_device("a100");
    options.gpus = 4;
    options.seq_length = 1024;
    options.global_batch_size = 16;
    return options;
}

/// A device on which nothing takes time, of nodes of 64, for tests that slow one thing down.
inline DeviceSpec instant_device() {
    DeviceSpec device;
    device.gpus_per_node.value = 64;
    device.peak_tflops.value = 1;  // 1000 FLOPs per ns
    device.dense_efficiency.value = 1e20;
    device.attention_efficiency.value = device.flash_attention_2_efficiency.value = 1e20;
    device.fp8_speedup.value = 1;
    device.memory_gb_per_s.value = 4;  // bytes per ns
    device.elementwise_efficiency.value = 1e20;
    device.link_gb_per_s.value = device.network_gb_per_s.value = 1e20;
    device.link_efficiency.value = device.network_efficiency.value = 1;
    device.overlap_efficiency.value = 1;
    return device;
}

inline void expect_near(double actual, double expected) {
    EXPECT_NEAR(actual, expected, 1e-9 * expected + 1e-9);
}

/// The meshes of all candidates, in their order.
inline std::vector<std::string> meshes(const PlanOptions& options) {
    std::vector<std::string> result;
    for (const Candidate& candidate : list_candidates(options).possible) {
        result.push_back(mesh_text(candidate));
    }
    return result;
}

/// Why candidates are left out.
inline std::set<std::string> reasons(const PlanOptions& options) {
    std::set<std::string> result;
    for (const auto& [candidate, why] : list_candidates(options).skipped) result.insert(why);
    return result;
}

}  // namespace vocabpipe::testing
