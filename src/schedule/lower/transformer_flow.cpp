// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/lower/transformer_flow.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace vocabpipe::lowering {

TransformerFlow::TransformerFlow(StepGraph& step) : step_(step) {
    if (!step.sizes.stage_tensors) return;
    tensors_.resize(static_cast<size_t>(step.schedule.stages));
    const std::vector<StageTensor>& all = *step.sizes.stage_tensors;
    for (size_t t = 0; t < all.size(); ++t) {
        tensors_[static_cast<size_t>(all[t].maker)].made.push_back(t);
        for (const int reader : all[t].readers) {
            tensors_[static_cast<size_t>(reader)].read.push_back(t);
        }
    }
}

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
    if (step_.sizes.stage_tensors) return forward_of_graph(j, x);
    const int last = step_.schedule.stages - 1;
    for (int s = 0; s <= last; ++s) {
        const int rank = step_.rank_of(s);
        const uint32_t y = s == last ? step_.add_output(rank, j, Purpose::vocabulary)
                                     : step_.add_boundary(rank, j);
        Activations made{.x = x};
        forward_stage(s, j, y, s == last ? embedded : kNoBuffer, {}, made);
        if (step_.backward) activations_.push_back(std::move(made));
        if (s == last) return y;
        x = hand_on({rank, y, step_.passes.of_stage(Op::F, s, j)}, step_.rank_of(s + 1),
                    step_.passes.of_stage(Op::F, s + 1, j), Lane::forward, j);
    }
    return x;
}

uint32_t TransformerFlow::forward_of_graph(uint32_t j, uint32_t x) {
    const std::vector<StageTensor>& all = *step_.sizes.stage_tensors;
    const int last = step_.schedule.stages - 1;
    std::vector<std::vector<uint32_t>> arrived(  // [tensor][rank]
        all.size(), std::vector<uint32_t>(static_cast<size_t>(step_.schedule.ranks), kNoBuffer));
    uint32_t y = kNoBuffer;
    for (int s = 0; s <= last; ++s) {
        const int rank = step_.rank_of(s);
        const StageTensors& of_stage = tensors_[static_cast<size_t>(s)];
        Activations made{.x = s == 0 ? x : kNoBuffer};
        for (const size_t t : of_stage.read) {
            made.inputs.push_back(arrived[t][static_cast<size_t>(rank)]);
        }
        std::vector<uint32_t> outputs;
        for (const size_t t : of_stage.made) {
            outputs.push_back(step_.graph.add_buffer(rank, all[t].bytes, Purpose::boundary));
        }
        if (s == last && !step_.output_owners.empty()) {
            y = step_.add_output(rank, j, Purpose::vocabulary);
        }
        forward_stage(s, j, y, kNoBuffer, outputs, made);
        if (step_.backward) activations_.push_back(std::move(made));
        const uint32_t node = step_.passes.of_stage(Op::F, s, j);
        for (size_t i = 0; i < outputs.size(); ++i) {
            const size_t t = of_stage.made[i];
            spread(all[t], {rank, outputs[i], node}, j, arrived[t]);
        }
    }
    return y;
}

void TransformerFlow::spread(const StageTensor& tensor, const Endpoint& made, uint32_t j,
                             std::vector<uint32_t>& arrived) {
    arrived[static_cast<size_t>(made.rank)] = made.buffer;
    for (const int reader : tensor.readers) {
        const int rank = step_.rank_of(reader);
        const uint32_t node = step_.passes.of_stage(Op::F, reader, j);
        uint32_t& there = arrived[static_cast<size_t>(rank)];
        if (rank == made.rank) {
            step_.graph.add_edge(made.node, node);
        } else if (there == kNoBuffer) {
            there = step_.graph.add_buffer(rank, tensor.bytes, Purpose::boundary);
            add_message(step_, made, {rank, there, node}, Lane::forward, j);
        }  // else an earlier reader of the same rank has waited for it
    }
}

void TransformerFlow::forward_stage(int s, uint32_t j, uint32_t y, uint32_t embedded,
                                    std::span<const uint32_t> outputs, Activations& made) {
    Graph& graph = step_.graph;
    const StageBytes& bytes = step_.of(j).stages[static_cast<size_t>(s)];
    const int rank = step_.rank_of(s);
    made.saved = graph.add_buffer(rank, bytes.saved, Purpose::activation);
    // With an R, the `recomputed` buffer of F is scratch; R makes the one that is kept.
    const uint32_t again = step_.passes.of_stage(Op::R, s, j);
    const bool recomputes = again != kNoNode;
    made.recomputed = graph.add_buffer(rank, bytes.recomputed,
                                       recomputes ? Purpose::workspace : Purpose::activation);
    std::vector<uint32_t> tensors = made.inputs;
    tensors.insert(tensors.end(), outputs.begin(), outputs.end());
    graph.set_operands<Op::F>(step_.passes.of_stage(Op::F, s, j),
                              {.x = made.x,
                               .y = y,
                               .saved = made.saved,
                               .recomputed = made.recomputed,
                               .workspace = step_.add_workspace(rank, bytes.forward_workspace),
                               .embedded = embedded},
                              tensors);
    if (recomputes) {
        made.recomputed = graph.add_buffer(rank, bytes.recomputed, Purpose::activation);
        graph.set_operands<Op::R>(again,
                                  {.x = made.x,
                                   .saved = made.saved,
                                   .recomputed = made.recomputed,
                                   .workspace = step_.add_workspace(rank, bytes.forward_workspace)},
                                  made.inputs);
    }
}

// --- backward ------------------------------------------------------------------------------------

uint32_t TransformerFlow::backward(uint32_t j, uint32_t dy, uint32_t embedded_gradient) {
    if (step_.sizes.stage_tensors) return backward_of_graph(j, dy);
    const int first = step_.schedule.first_backward;
    const int last = step_.schedule.stages - 1;
    for (int s = last; s >= first; --s) {
        const int rank = step_.rank_of(s);
        const uint32_t dx = step_.add_boundary(rank, j);
        backward_stage(s, j, dy, dx, s == last ? embedded_gradient : kNoBuffer, {});
        dy = s == first ? dx
                        : hand_on({rank, dx, step_.passes.backward(s, j)}, step_.rank_of(s - 1),
                                  step_.passes.backward(s - 1, j), Lane::backward, j);
    }
    return dy;
}

uint32_t TransformerFlow::backward_of_graph(uint32_t j, uint32_t dy) {
    const std::vector<StageTensor>& all = *step_.sizes.stage_tensors;
    const int last = step_.schedule.stages - 1;
    std::vector<uint32_t> gradients(all.size(), kNoBuffer);  // at the stage that needs it next
    uint32_t dx = kNoBuffer;
    for (int s = last; s >= 0; --s) {
        const int rank = step_.rank_of(s);
        const StageTensors& of_stage = tensors_[static_cast<size_t>(s)];
        std::vector<uint32_t> tensors;
        for (const size_t t : of_stage.made) tensors.push_back(gradients[t]);
        for (const size_t t : of_stage.read) {
            if (all[t].readers.back() != s) tensors.push_back(gradients[t]);
        }
        for (const size_t t : of_stage.read) {
            gradients[t] = step_.graph.add_buffer(rank, all[t].bytes, Purpose::boundary);
            tensors.push_back(gradients[t]);
        }
        if (s == 0 && !step_.input_owners.empty()) dx = step_.add_boundary(rank, j);
        backward_stage(s, j, s == last ? dy : kNoBuffer, dx, kNoBuffer, tensors);
        for (const size_t t : of_stage.read) {
            const auto reader = std::ranges::find(all[t].readers, s);
            const int next = reader == all[t].readers.begin() ? all[t].maker : *std::prev(reader);
            const uint32_t user = step_.passes.backward(next, j);
            const Endpoint made{rank, gradients[t], step_.passes.backward(s, j)};
            if (step_.rank_of(next) == rank) {
                step_.graph.add_edge(made.node, user);
                continue;
            }
            gradients[t] =
                step_.graph.add_buffer(step_.rank_of(next), all[t].bytes, Purpose::boundary);
            add_message(step_, made, {step_.rank_of(next), gradients[t], user}, Lane::backward, j);
        }
    }
    return dx;
}

void TransformerFlow::backward_stage(int s, uint32_t j, uint32_t dy, uint32_t dx,
                                     uint32_t embedded_gradient,
                                     std::span<const uint32_t> gradients) {
    Graph& graph = step_.graph;
    const StageBytes& bytes = step_.of(j).stages[static_cast<size_t>(s)];
    const int rank = step_.rank_of(s);
    const Activations& made = activations(s, j);
    std::vector<uint32_t> tensors = made.inputs;
    tensors.insert(tensors.end(), gradients.begin(), gradients.end());
    const uint32_t node = step_.passes.backward(s, j);
    if (step_.passes.is_split(s, j)) {
        const uint32_t for_weight = graph.add_buffer(rank, bytes.for_weight, Purpose::activation);
        graph.set_operands<Op::I>(
            node,
            {.dy = dy,
             .x = made.x,
             .saved = made.saved,
             .recomputed = made.recomputed,
             .dx = dx,
             .for_weight = for_weight,
             .workspace = step_.add_workspace(rank, bytes.input_gradient_workspace),
             .embedded_gradient = embedded_gradient},
            tensors);
        const uint32_t weight = step_.passes.of_stage(Op::W, s, j);
        graph.set_operands<Op::W>(
            weight,
            {.x = made.x,
             .saved = made.saved,
             .recomputed = made.recomputed,
             .for_weight = for_weight,
             .workspace = step_.add_workspace(rank, bytes.weight_gradient_workspace)},
            made.inputs);
        graph.add_edge(node, weight);
    } else {
        graph.set_operands<Op::B>(node,
                                  {.dy = dy,
                                   .x = made.x,
                                   .saved = made.saved,
                                   .recomputed = made.recomputed,
                                   .dx = dx,
                                   .workspace = step_.add_workspace(rank, bytes.backward_workspace),
                                   .embedded_gradient = embedded_gradient},
                                  tensors);
    }
    graph.add_edge(step_.passes.of_stage(Op::F, s, j), node);
}

}  // namespace vocabpipe::lowering
