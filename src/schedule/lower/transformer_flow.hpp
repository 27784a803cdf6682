// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/communication.hpp"
#include "src/schedule/lower/step_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vocabpipe::lowering {

/// Adds a microbatch's way through the stages and back: buffers of F, R, B, I and W, and the
/// messages between ranks. Stages on one rank share the buffer. Stages are a chain, or a graph
/// (StepSizes::stage_tensors): then a tensor goes once to every other rank that reads it, and its
/// gradient goes from reader to reader.
class TransformerFlow {
public:
    explicit TransformerFlow(StepGraph& step);

    /// F, and R, of all stages from x of stage 0; returns X, the output of the last one.
    /// Microbatches come in order. `embedded`: embedded tokens for the last stage, or kNoBuffer.
    uint32_t forward(uint32_t microbatch, uint32_t x, uint32_t embedded);
    /// B, or I and W, of all stages from the gradient of X; returns that of stage 0's input. The
    /// last stage makes that of its embedded tokens in `embedded_gradient`, if there is such a
    /// buffer.
    uint32_t backward(uint32_t microbatch, uint32_t dy, uint32_t embedded_gradient);

private:
    /// Buffers that live from F, or R, to the end of the backward.
    struct Activations {
        uint32_t x = kNoBuffer;
        uint32_t saved = kNoBuffer;
        uint32_t recomputed = kNoBuffer;
        std::vector<uint32_t> inputs = {};  ///< of a stage of a graph
    };
    /// Tensors of a stage of a graph, as indices into StepSizes::stage_tensors.
    struct StageTensors {
        std::vector<size_t> read, made;
    };

    uint32_t forward_of_graph(uint32_t microbatch, uint32_t x);
    uint32_t backward_of_graph(uint32_t microbatch, uint32_t dy);
    /// Hands a tensor of F of its maker on to the ranks of all readers; sets the entries of
    /// `arrived` ([rank]) of these.
    void spread(const StageTensor& tensor, const Endpoint& made, uint32_t microbatch,
                std::vector<uint32_t>& arrived);
    /// `outputs`: of a stage of a graph, whose inputs are those of `made`.
    void forward_stage(int stage, uint32_t microbatch, uint32_t y, uint32_t embedded,
                       std::span<const uint32_t> outputs, Activations& made);
    /// `gradients`: of a stage of a graph, what Activations::tensors has after its inputs.
    void backward_stage(int stage, uint32_t microbatch, uint32_t dy, uint32_t dx,
                        uint32_t embedded_gradient, std::span<const uint32_t> gradients);
    [[nodiscard]] const Activations& activations(int stage, uint32_t microbatch) const {
        return activations_[static_cast<size_t>(microbatch) *
                                static_cast<size_t>(step_.schedule.stages) +
                            static_cast<size_t>(stage)];
    }
    /// The buffer in which the next stage's pass `to` gets the output of a stage.
    uint32_t hand_on(const Endpoint& made, int to_rank, uint32_t to, Lane lane,
                     uint32_t microbatch);

    StepGraph& step_;
    std::vector<StageTensors> tensors_;     ///< [stage] of a graph; empty: a chain
    std::vector<Activations> activations_;  ///< [microbatch * stages + stage]
};

}  // namespace vocabpipe::lowering
