// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/step_memory.hpp"
#include "src/schedule/ops.hpp"
#include "vocabpipe/context.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/program.hpp"

#include <span>
#include <vector>

namespace vocabpipe {

/// Runs the passes and local actions of one rank: calls the modules with the buffers of the
/// program. On a device with streams a call enqueues.
class PassRunner {
public:
    /// All must outlive this.
    PassRunner(Context& context, const RankModules& modules, const StepMemory& memory, int rank)
        : context_(context), modules_(modules), memory_(memory), rank_(rank) {}

    /// Following calls are for this program and these microbatches, whose spans are in the device's
    /// memory.
    void begin_step(const Program& program, std::span<const Microbatch> microbatches) {
        program_ = &program;
        microbatches_ = microbatches;
    }
    /// Runs a pass or a local action.
    void run(const Action& action);

private:
    void run_pass(const Action& action, const Pass& pass);
    /// Tells the model where the gathered weights and the whole gradients of the pass are, or that
    /// they are nowhere any more.
    void place_parameters(const Action& action, bool there) const;
    /// Operands of a Reduce of a weight that layers share.
    [[nodiscard]] std::vector<SharedGradient> shared_gradients(const Action& action) const;
    void score(const OperandsOf<Op::S>& o, const Microbatch& microbatch);
    void output_backward(const OperandsOf<Op::T>& o, const Microbatch& microbatch, bool accumulate);
    void combine_softmax(const Action& action);
    void ordered_sum(const Action& action);

    template <auto what>
    [[nodiscard]] OperandsOf<what> operands(const Action& action) const {
        return operands_of<what>(*program_, action);
    }
    [[nodiscard]] Activations activations(uint32_t saved, uint32_t recomputed) const {
        return {.saved = memory_.bytes(saved),
                .recomputed = memory_.bytes(recomputed),
                .tensors = tensors_};
    }
    /// Sets tensors_ to the operands that follow those of every such pass.
    template <Op op>
    void find_tensors(const Action& action) {
        tensors_.clear();
        const std::span<const uint32_t> all = program_->operands_of(action);
        if (all.size() <= kOperandCount<OperandsOf<op>>) return;
        for (const uint32_t buffer : all.subspan(kOperandCount<OperandsOf<op>>)) {
            if (is_of_parameters(buffer)) continue;
            tensors_.push_back(memory_.bytes(buffer));
        }
    }
    /// Whether a buffer has gathered weights or whole gradients of a stage.
    [[nodiscard]] bool is_of_parameters(uint32_t buffer) const {
        if (buffer == kNoBuffer) return false;
        const Purpose purpose = program_->buffers[buffer].purpose;
        return purpose == Purpose::stage_weights || purpose == Purpose::stage_gradients;
    }
    /// With the gradient of embedded tokens, or kNoBuffer.
    [[nodiscard]] Activations activations(uint32_t saved, uint32_t recomputed,
                                          uint32_t embedded_gradient) const {
        Activations all = activations(saved, recomputed);
        all.embedded_gradient = memory_.boundary(embedded_gradient);
        return all;
    }

    Context& context_;
    const RankModules& modules_;
    const StepMemory& memory_;
    const int rank_;
    const Program* program_ = nullptr;
    std::span<const Microbatch> microbatches_;
    std::vector<Bytes> tensors_;  ///< of the running pass of a stage of a graph
};

}  // namespace vocabpipe
