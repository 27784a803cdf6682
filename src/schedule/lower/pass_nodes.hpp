// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/graph.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/schedule.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// The passes of a schedule as nodes of a graph, in each rank's order, and where to find them.
class PassNodes {
public:
    /// Adds all of them to the graph, which must outlive this.
    PassNodes(const Schedule& schedule, Graph& graph);

    /// F, B, I, W, R of a stage; kNoNode: not in the schedule.
    [[nodiscard]] uint32_t of_stage(Op op, int stage, uint32_t microbatch) const {
        return of_stage_[static_cast<size_t>(op)]
                        [static_cast<size_t>(stage) * microbatches_ + microbatch];
    }
    /// E, G, S, T of a rank.
    [[nodiscard]] uint32_t of_rank(Op op, int rank, uint32_t microbatch) const {
        return of_rank_[static_cast<size_t>(op) - kFirstOfRank]
                       [static_cast<size_t>(rank) * microbatches_ + microbatch];
    }
    /// Whether a stage's backward is I and W.
    [[nodiscard]] bool is_split(int stage, uint32_t microbatch) const {
        return of_stage(Op::B, stage, microbatch) == kNoNode;
    }
    /// B or I.
    [[nodiscard]] uint32_t backward(int stage, uint32_t microbatch) const {
        return of_stage(is_split(stage, microbatch) ? Op::I : Op::B, stage, microbatch);
    }

    /// The pass after which the gradients of a bucket of the rank are complete.
    [[nodiscard]] uint32_t last_gradient(int rank, const GradientBucket& bucket) const;
    /// Records that a pass of the step's end completes the gradient of the rank's input or output
    /// shard, or of a stage.
    void completes_input(int rank, uint32_t node) {
        last_of_input_[static_cast<size_t>(rank)] = node;
    }
    void completes_stage(int stage, uint32_t node) {
        last_of_stage_[static_cast<size_t>(stage)] = node;
    }
    void completes_output(int rank, uint32_t node) {
        last_of_output_[static_cast<size_t>(rank)] = node;
    }

private:
    static constexpr size_t kFirstOfRank = static_cast<size_t>(Op::E);

    void add(int rank, const Pass& pass, uint32_t node);

    uint32_t microbatches_;
    std::array<std::vector<uint32_t>, kFirstOfRank> of_stage_;  ///< F B I W R: [stage * m + j]
    std::array<std::vector<uint32_t>, 4> of_rank_;              ///< E G S T: [rank * m + j]
    std::vector<uint32_t> last_of_input_, last_of_output_;      ///< [rank]
    std::vector<uint32_t> last_of_stage_;                       ///< [stage]
};

}  // namespace vocabpipe::lowering
