// SPDX-License-Identifier: Apache-2.0
#include "src/model/check_expert_parallel.hpp"

#include "vocabpipe/error.hpp"

#include <numeric>
#include <string>

namespace vocabpipe {

namespace {

std::string text(int64_t number) {
    return std::to_string(number);
}

[[noreturn]] void refuse(int ranks, const std::string& why) {
    throw UsageError("--expert-model-parallel-size " + text(ranks) + ": " + why);
}

[[noreturn]] void refuse_tensor(int expert_tensor, const std::string& why) {
    throw UsageError("--expert-tensor-parallel-size " + text(expert_tensor) + ": " + why);
}

/// For numbers of ranks that do not fit a mesh. `use`: numbers that do.
[[noreturn]] void refuse_ranks(int ranks, int expert_tensor, const std::string& why,
                               const std::string& use, const std::string& else_use = "") {
    if (expert_tensor == 1) refuse(ranks, why + "; use " + use + else_use);
    refuse_tensor(expert_tensor, "times --expert-model-parallel-size " +
                                     text(ranks / expert_tensor) + " these are " + text(ranks) +
                                     " ranks, which " + why + "; use sizes whose product is " +
                                     use + else_use);
}

}  // namespace

void check_expert_parallel(const ModelConfig& config, int ranks, int expert_tensor) {
    if (expert_tensor < 1) refuse_tensor(expert_tensor, "must be at least 1");
    if (ranks % expert_tensor != 0) {
        refuse_tensor(expert_tensor, "must divide the " + text(ranks) +
                                         " ranks that share the experts of a layer; use a "
                                         "divisor of " +
                                         text(ranks));
    }
    if (ranks == 1) return;
    const int groups = ranks / expert_tensor;
    const int64_t experts = config.moe.experts;
    if (experts == 0) {
        const std::string why =
            "--model-type " + std::string(config.family) + " has no experts; use 1";
        if (groups > 1) refuse(groups, why);
        refuse_tensor(expert_tensor, why);
    }
    if (experts % groups != 0) {
        refuse(groups, "--num-experts is " + text(experts) +
                           ", of which every rank needs equally many; use a divisor of " +
                           text(experts));
    }
    const int64_t columns = config.expert_ffn_hidden_size();
    if (columns % expert_tensor != 0) {
        const std::string flag =
            config.moe.ffn_hidden_size > 0 ? "--moe-ffn-hidden-size" : "--ffn-hidden-size";
        refuse_tensor(expert_tensor, flag + " is " + text(columns) +
                                         ", of which every rank needs equally many; use a "
                                         "divisor of " +
                                         text(columns));
    }
}

void check_expert_ranks(const Mesh& mesh, int expert_tensor) {
    if (mesh.expert < 1) refuse(mesh.expert, "must be at least 1");
    const bool cut = mesh.context > 1;
    if (mesh.slices() % mesh.expert != 0) {
        refuse_ranks(mesh.expert, expert_tensor,
                     std::string("must divide replicas x ") + (cut ? "context ranks x " : "") +
                         "tensor ranks, which are " + text(mesh.data) + " x " +
                         (cut ? text(mesh.context) + " x " : "") + text(mesh.tensor),
                     "a divisor of " + text(mesh.slices()),
                     ", or a smaller --pipeline-model-parallel-size");
    }
    if (!mesh.teams_nest()) {
        refuse_ranks(
            mesh.expert, expert_tensor,
            "must be a divisor or a multiple of --tensor-model-parallel-size " + text(mesh.tensor) +
                (cut ? ", and of it times --context-parallel-size " + text(mesh.context) : ""),
            text(std::gcd(mesh.expert, mesh.tensor)));
    }
}

}  // namespace vocabpipe
