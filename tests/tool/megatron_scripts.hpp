// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace vocabpipe::testing {

/// What a script for Megatron gives pretrain_gpt.py, with sizes made small.
struct MegatronScript {
    std::string name;  ///< of tests, and of its column in docs/megatron.md
    std::string path;  ///< in its repository
    int ranks = 1;
    std::vector<std::string> flags;  ///< one each, with its words
    /// Those of them that are refused. A run goes without.
    std::vector<std::string> refused;
    std::vector<std::string> instead;  ///< what the refusals ask for
};

/// Scripts of NVIDIA/Megatron-LM, and of sail-sg/zero-bubble-pipeline-parallelism with each of its
/// switches for a schedule.
[[nodiscard]] std::vector<MegatronScript> megatron_scripts();

}  // namespace vocabpipe::testing
