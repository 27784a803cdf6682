// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/transformer_flow.hpp"

namespace vocabpipe::lowering {

uint32_t TransformerFlow::hand_on(const Endpoint& made, int to_rank, uint32_t to, Lane lane,
                                  uint32_t microbatch) {
    if (to_rank == made.rank) {
        step_.graph.add_edge(made.node, to);
        return made.buffer;
    }
    const uint32_t received = step_.add_boundary(to_rank, microbatch);
    add_message(step_, made, {to_rank, received, to}, lane, microbatch);
    return received;
}

// --- forward -------------------------------------------------------------------------------------

uint32_t TransformerFlow::forward(uint32_t j, uint32_t x, uint32_t embedded) {
    const int last = step_.schedule.stages - 1;
    for (int s = 0; s <= last; ++s) {
        const int rank = step_.rank_of(s);
        const uint32_t y = s == last ? step_.add_output(rank, j, Purpose::vocabulary)
                                     : step_.add_boundary(rank, j);
        const Activations made = forward_stage(s, j, x, y, s == last ? embedded : kNoBuffer);
        if (step_.backward) activations_.push_back(made);
        if (s == last) return y;
        x = hand_on({rank, y, step_.passes.of_stage(Op::F, s, j)}, step_.rank_of(s + 1),
                    step_.passes.of_stage(Op::F, s + 1, j), Lane::forward, j);
    }
    return x;
}

TransformerFlow::Activations TransformerFlow::forward_stage(int s, uint32_t j, uint32_t x,
                                                            uint32_t y, uint32_t embedded) {
    Graph& graph = step_.graph;
    const StageBytes& bytes = step_.of(j).stages[static_cast<size_t>(s)];
    const int rank = step_.rank_of(s);
    const uint32_t saved = graph.add_buffer(rank, bytes.saved, Purpose::activation);
    // With an R, the `recomputed` buffer of F is scratch; R makes the one that is kept.
    const uint32_t again = step_.passes.of_stage(Op::R, s, j);
    const bool recomputes = again != kNoNode;
    uint32_t recomputed = graph.add_buffer(rank, bytes.recomputed,
                                           recomputes ? Purpose::workspace : Purpose::activation);
    graph.set_operands<Op::F>(step_.passes.of_stage(Op::F, s, j),
                              {.x = x,
                               .y = y,
                               .saved = saved,
                               .recomputed = recomputed,
                               .workspace = step_.add_workspace(rank, bytes.forward_workspace),
                               .embedded = embedded});
    if (recomputes) {
        recomputed = graph.add_buffer(rank, bytes.recomputed, Purpose::activation);
        graph.set_operands<Op::R>(
            again, {.x = x,
                    .saved = saved,
                    .recomputed = recomputed,
                    .workspace = step_.add_workspace(rank, bytes.forward_workspace)});
    }
    return {x, saved, recomputed};
}

// --- backward ------------------------------------------------------------------------------------

uint32_t TransformerFlow::backward(uint32_t j, uint32_t dy, uint32_t embedded_gradient) {
    const int first = step_.schedule.first_backward;
    const int last = step_.schedule.stages - 1;
    for (int s = last; s >= first; --s) {
        const int rank = step_.rank_of(s);
        const uint32_t dx = step_.add_boundary(rank, j);
        backward_stage(s, j, dy, dx, s == last ? embedded_gradient : kNoBuffer);
        dy = s == first ? dx
                        : hand_on({rank, dx, step_.passes.backward(s, j)}, step_.rank_of(s - 1),
                                  step_.passes.backward(s - 1, j), Lane::backward, j);
    }
    return dy;
}

void TransformerFlow::backward_stage(int s, uint32_t j, uint32_t dy, uint32_t dx,
                                     uint32_t embedded_gradient) {
    Graph& graph = step_.graph;
    const StageBytes& bytes = step_.of(j).stages[static_cast<size_t>(s)];
    const int rank = step_.rank_of(s);
    const auto stages = static_cast<size_t>(step_.schedule.stages);
    const Activations& made =
        activations_[static_cast<size_t>(j) * stages + static_cast<size_t>(s)];
    const uint32_t node = step_.passes.backward(s, j);
    if (step_.passes.is_split(s, j)) {
        const uint32_t for_weight = graph.add_buffer(rank, bytes.for_weight, Purpose::activation);
        graph.set_operands<Op::I>(
            node, {.dy = dy,
                   .x = made.x,
                   .saved = made.saved,
                   .recomputed = made.recomputed,
                   .dx = dx,
                   .for_weight = for_weight,
                   .workspace = step_.add_workspace(rank, bytes.input_gradient_workspace),
                   .embedded_gradient = embedded_gradient});
        const uint32_t weight = step_.passes.of_stage(Op::W, s, j);
        graph.set_operands<Op::W>(
            weight, {.x = made.x,
                     .saved = made.saved,
                     .recomputed = made.recomputed,
                     .for_weight = for_weight,
                     .workspace = step_.add_workspace(rank, bytes.weight_gradient_workspace)});
        graph.add_edge(node, weight);
    } else {
        graph.set_operands<Op::B>(node,
                                  {.dy = dy,
                                   .x = made.x,
                                   .saved = made.saved,
                                   .recomputed = made.recomputed,
                                   .dx = dx,
                                   .workspace = step_.add_workspace(rank, bytes.backward_workspace),
                                   .embedded_gradient = embedded_gradient});
    }
    graph.add_edge(step_.passes.of_stage(Op::F, s, j), node);
}

}  // namespace vocabpipe::lowering
