// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_expert_parallel.hpp"

#include "vocabpipe/error.hpp"

#include <numeric>
#include <string>

namespace vocabpipe {

namespace {

[[noreturn]] void refuse(int ranks, const std::string& why) {
    throw UsageError("--expert-model-parallel-size " + std::to_string(ranks) + ": " + why);
}

}  // namespace

void check_expert_parallel(const ModelConfig& config, int ranks) {
    if (ranks == 1) return;
    const int64_t experts = config.moe.experts;
    if (experts == 0) {
        refuse(ranks, "--model-type " + std::string(config.family) + " has no experts; use 1");
    }
    if (experts % ranks != 0) {
        refuse(ranks, "--num-experts is " + std::to_string(experts) +
                          ", of which every rank needs equally many; use a divisor of " +
                          std::to_string(experts));
    }
}

void check_expert_ranks(const Mesh& mesh) {
    const auto text = [](int number) { return std::to_string(number); };
    if (mesh.expert < 1) refuse(mesh.expert, "must be at least 1");
    if (mesh.slices() % mesh.expert != 0) {
        refuse(mesh.expert, "must divide replicas x tensor ranks, which are " + text(mesh.data) +
                                " x " + text(mesh.tensor) + "; use a divisor of " +
                                text(mesh.slices()) +
                                ", or a smaller --pipeline-model-parallel-size");
    }
    if (!mesh.teams_nest()) {
        refuse(mesh.expert, "must be a divisor or a multiple of --tensor-model-parallel-size " +
                                text(mesh.tensor) + "; use " +
                                text(std::gcd(mesh.expert, mesh.tensor)));
    }
}

}  // namespace vocabpipe
