// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/schedule/lower/communication.hpp"
#include "src/schedule/lower/step_graph.hpp"

#include <cstdint>
#include <vector>

namespace vocabpipe::lowering {

/// Adds a microbatch's way through the stages and back: buffers of F, R, B, I and W, and the
/// messages between ranks. Consecutive stages on one rank share the buffer.
class TransformerFlow {
public:
    explicit TransformerFlow(StepGraph& step) : step_(step) {}

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
    };
    Activations forward_stage(int stage, uint32_t microbatch, uint32_t x, uint32_t y,
                              uint32_t embedded);
    void backward_stage(int stage, uint32_t microbatch, uint32_t dy, uint32_t dx,
                        uint32_t embedded_gradient);
    /// The buffer in which the next stage's pass `to` gets the output of a stage.
    uint32_t hand_on(const Endpoint& made, int to_rank, uint32_t to, Lane lane,
                     uint32_t microbatch);

    StepGraph& step_;
    std::vector<Activations> activations_;  ///< [microbatch * stages + stage]
};

}  // namespace vocabpipe::lowering
