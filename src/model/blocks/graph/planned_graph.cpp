// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/planned_graph.hpp"

#include "src/model/views.hpp"
#include "vocabpipe/layer_graph.hpp"

#include <algorithm>
#include <array>

namespace vocabpipe {

namespace {

/// The tensors that one operation reads.
class Inputs {
public:
    void add(ConstTensor tensor) { tensors_[count_++] = tensor; }
    [[nodiscard]] std::span<const ConstTensor> all() const {
        return std::span(tensors_).first(count_);
    }

private:
    std::array<ConstTensor, kMostOperatorInputs> tensors_;
    size_t count_ = 0;
};

/// The pass's scratch from a column on.
void* scratch_memory(const StagePass& pass, const GraphTensors& tensors, int64_t first_column) {
    return static_cast<std::byte*>(pass.scratch.rows.data) +
           first_column * tensors.units * size_of(tensors.dtype);
}

}  // namespace

/// Where the values of a pass are. In backwards those that are kept are there.
class PlannedGraph::Values {
public:
    Values(const PlannedGraph& graph, const StagePass& pass, const GraphTensors& tensors,
           const Saved& saved, bool backward)
        : graph_(graph), pass_(pass), tensors_(tensors), saved_(saved), backward_(backward) {}

    /// Empty: an output where it is not wanted, or a value without memory.
    [[nodiscard]] ConstTensor operator[](int node) const {
        const int slot = graph_.plan_.value_of_node[index_of(node)];
        if (slot < 0) return {};
        const ValueSlot& of = graph_.plan_.values[index_of(slot)];
        if (of.place != ValueSlot::Place::input) return memory_of(node);
        const void* const data = tensors_.inputs[index_of(of.port)].data;
        return data == nullptr ? ConstTensor() : shaped(node, data);
    }
    /// The memory to write it to.
    [[nodiscard]] Tensor memory_of(int node) const {
        void* const data = memory(graph_.plan_.value_of_node[index_of(node)]);
        return data == nullptr ? Tensor() : shaped(node, data);
    }
    [[nodiscard]] OperationTensors tensors(int node, const Inputs& inputs) const {
        return {.inputs = inputs.all(), .output = (*this)[node], .statistics = statistics(node)};
    }
    [[nodiscard]] Inputs inputs(int node) const {
        Inputs inputs;
        for (const int input : graph_.nodes_[index_of(node)].inputs) inputs.add((*this)[input]);
        return inputs;
    }
    /// Scratch for a result of which only what the operation leaves besides is wanted.
    [[nodiscard]] Tensor unwanted(int node) const { return shaped(node, pass_.scratch.rows.data); }
    [[nodiscard]] const GraphTensors& ends() const { return tensors_; }

private:
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> shaped(int node, Pointer data) const {
        const GraphNode& of = graph_.nodes_[index_of(node)];
        return {data, tensors_.units * of.rows, of.columns, tensors_.dtype};
    }
    [[nodiscard]] Statistics statistics(int node) const {
        Statistics all = saved_.statistics[index_of(node)];
        const int64_t rows = graph_.nodes_[index_of(node)].rows;
        if (!all || rows == 1) return all;
        return {all.data, all.rows * rows, all.cols / rows, all.dtype};
    }
    [[nodiscard]] void* memory(int slot) const {
        const ValueSlot& of = graph_.plan_.values[index_of(slot)];
        switch (of.place) {
            case ValueSlot::Place::input:
                return nullptr;
            case ValueSlot::Place::output:
                return tensors_.outputs.empty() ? nullptr
                                                : tensors_.outputs[index_of(of.port)].data;
            case ValueSlot::Place::scratch:
                return backward_ ? nullptr : scratch_memory(pass_, tensors_, of.first_column);
            case ValueSlot::Place::costly:
            case ValueSlot::Place::cheap:
                break;
        }
        return saved_.values[index_of(slot)].data;
    }

    const PlannedGraph& graph_;
    const StagePass& pass_;
    const GraphTensors& tensors_;
    const Saved& saved_;
    bool backward_;
};

PlannedGraph::Saved PlannedGraph::saved_views(SavedViews& views) const {
    Saved saved;
    for (const ValueSlot& slot : plan_.values) {
        const bool costly = slot.place == ValueSlot::Place::costly;
        const bool cheap = slot.place == ValueSlot::Place::cheap;
        saved.values.push_back(
            costly || cheap ? (cheap ? views.cheap : views.costly).take(slot.columns) : Tensor());
    }
    for (size_t node = 0; node < nodes_.size(); ++node) {
        const int64_t count = nodes_[node].operation ? nodes_[node].operation->statistics() : 0;
        TokenViews& memory = plan_.recomputed[node] ? views.cheap : views.costly;
        saved.statistics.push_back(count > 0 ? memory.statistics(count * nodes_[node].rows)
                                             : Statistics());
    }
    return saved;
}

PlannedGraph::Gradients PlannedGraph::gradient_views(TokenViews& views) const {
    Gradients gradients;
    for (const GradientSlot& slot : plan_.gradients) {
        gradients.kept.push_back(slot.place == GradientSlot::Place::kept ? views.take(slot.columns)
                                                                         : Tensor());
    }
    return gradients;
}

ScratchSize PlannedGraph::scratch(const ScratchFor& use) const {
    return scratch(use, std::max(plan_.forward_columns, plan_.backward_columns));
}

ScratchSize PlannedGraph::whole_scratch(const ScratchFor& use) const {
    return scratch(use, plan_.whole_columns);
}

ScratchSize PlannedGraph::scratch(const ScratchFor& use, int64_t columns) const {
    ScratchSize size{.columns = columns, .own_columns = plan_.product_columns};
    for (const GraphNode& node : nodes_) {
        if (node.operation) size = size.or_larger(node.operation->scratch(use));
    }
    return size;
}

void PlannedGraph::run(const StagePass& pass, const ForwardStep& step, const Values& values) const {
    const Inputs inputs = values.inputs(step.node);
    const ConstTensor residual = step.residual < 0 ? ConstTensor() : values[step.residual];
    Tensor y = values.memory_of(step.value);
    if (!y) y = values.unwanted(step.value);
    operation(step.node).forward(pass, values.tensors(step.node, inputs), residual, y);
}

void PlannedGraph::run_list(const StagePass& pass, const Values& values, bool all) const {
    // R runs the product and its GELU apart, or the product alone, and must give the bits of F.
    const auto together = [&](const ForwardStep& gelu) {
        if (pass.recompute == Recompute::selective) {
            return !gelu.recomputed && !plan_.forward[index_of(gelu.gelu)].recomputed;
        }
        return pass.recompute == Recompute::none || gelu.for_backward;
    };
    for (size_t i = 0; i < plan_.forward.size(); ++i) {
        const ForwardStep& step = plan_.forward[i];
        if (!all && !step.for_backward) continue;
        const bool is_product = step.gelu > static_cast<int>(i);
        if (step.gelu < 0 || !together(is_product ? plan_.forward[index_of(step.gelu)] : step)) {
            run(pass, step, values);
        } else if (is_product) {
            operation(step.node).product()->forward_gelu(
                pass, values.inputs(step.node).all()[0], values.memory_of(step.value),
                values.memory_of(plan_.forward[index_of(step.gelu)].value));
        }
    }
}

void PlannedGraph::forward(const StagePass& pass, const GraphTensors& tensors,
                           const Saved& saved) const {
    const Values values(*this, pass, tensors, saved, false);
    run_list(pass, values, true);
    for (const GraphPlan::Copied& copied : plan_.copied_to_output) {
        const ConstTensor made = values[copied.node];
        Tensor to = tensors.outputs[index_of(copied.port)];
        to = {to.data, made.rows, made.cols, made.dtype};
        pass.op().convert(pass.ctx, made, to);
    }
}

void PlannedGraph::forward_for_backward(const StagePass& pass, const GraphTensors& tensors,
                                        const Saved& saved) const {
    run_list(pass, Values(*this, pass, tensors, saved, false), false);
}

void PlannedGraph::recompute(const StagePass& pass, const GraphTensors& tensors,
                             const Saved& saved) const {
    const Values values(*this, pass, tensors, saved, false);
    for (const ForwardStep& step : plan_.forward) {
        if (step.recomputed) run(pass, step, values);
    }
}

/// Where the gradients of a pass are.
class PlannedGraph::GradientViews {
public:
    /// `kept`: null in B.
    GradientViews(const PlannedGraph& graph, const StagePass& pass, const GraphTensors& tensors,
                  const Gradients* kept)
        : graph_(graph), pass_(pass), tensors_(tensors), kept_(kept) {}

    /// The gradient of a node; empty: none.
    [[nodiscard]] ConstTensor of(int slot, int node) const {
        return slot < 0 ? ConstTensor() : shaped(node, read(slot));
    }
    /// The memory to write it to.
    [[nodiscard]] Tensor memory_of(int slot, int node) const { return shaped(node, memory(slot)); }
    /// The same for sums and copies of slots: a row per unit.
    [[nodiscard]] ConstTensor of(int slot) const {
        if (slot < 0) return {};
        return {read(slot), tensors_.units, columns(slot), tensors_.dtype};
    }
    [[nodiscard]] Tensor memory_of(int slot) const {
        return {memory(slot), tensors_.units, columns(slot), tensors_.dtype};
    }

private:
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> shaped(int node, Pointer data) const {
        const GraphNode& of = graph_.nodes_[index_of(node)];
        return {data, tensors_.units * of.rows, of.columns, tensors_.dtype};
    }
    [[nodiscard]] int64_t columns(int slot) const {
        return graph_.plan_.gradients[index_of(slot)].columns;
    }
    [[nodiscard]] const void* read(int slot) const {
        const GradientSlot& of = graph_.plan_.gradients[index_of(slot)];
        return of.place == GradientSlot::Place::outside
                   ? tensors_.outside_gradients[index_of(of.port)].data
                   : memory(slot);
    }
    [[nodiscard]] void* memory(int slot) const {
        const GradientSlot& of = graph_.plan_.gradients[index_of(slot)];
        switch (of.place) {
            case GradientSlot::Place::outside:
                return nullptr;
            case GradientSlot::Place::input:
                return tensors_.input_gradients[index_of(of.port)].data;
            case GradientSlot::Place::scratch:
            case GradientSlot::Place::kept:
                break;
        }
        if (kept_ == nullptr) {
            return scratch_memory(pass_, tensors_, graph_.plan_.columns_in_whole[index_of(slot)]);
        }
        return of.place == GradientSlot::Place::kept
                   ? kept_->kept[index_of(slot)].data
                   : scratch_memory(pass_, tensors_, of.first_column);
    }

    const PlannedGraph& graph_;
    const StagePass& pass_;
    const GraphTensors& tensors_;
    const Gradients* kept_;
};

void PlannedGraph::run_backward(const StagePass& pass, const BackwardStep& step,
                                const Values& values, const GradientViews& views) const {
    if (step.node < 0) {
        if (step.dy < 0) {
            pass.op().set_zero(pass.ctx, bytes_of<std::byte>(views.memory_of(step.to[0])));
        } else if (step.added < 0) {
            pass.op().convert(pass.ctx, views.of(step.dy), views.memory_of(step.to[0]));
        } else {
            pass.op().add(pass.ctx, views.of(step.dy), views.of(step.added),
                          views.memory_of(step.to[0]));
        }
        return;
    }
    const std::vector<int>& read = nodes_[index_of(step.gelu < 0 ? step.node : step.gelu)].inputs;
    std::array<Tensor, kMostOperatorInputs> to;
    for (size_t i = 0; i < step.to.size(); ++i) to[i] = views.memory_of(step.to[i], read[i]);
    const ConstTensor dy = views.of(step.dy, step.node);
    if (step.gelu >= 0) {
        operation(step.node).product()->backward_input_gelu(pass, dy, values[read[0]], to[0]);
        return;
    }
    const Inputs inputs = values.inputs(step.node);
    operation(step.node).backward_input(pass, values.tensors(step.node, inputs), dy,
                                        views.of(step.added, read[0]),
                                        std::span(to).first(step.to.size()));
}

void PlannedGraph::run_weight(const StagePass& pass, const WeightStep& step, int dy,
                              const Values& values, const GradientViews& views) const {
    const Inputs inputs = values.inputs(step.node);
    StagePass of_step = pass;
    if (step.alone) of_step.weight_gradients.with_input = false;
    operation(step.node).backward_weight(of_step, values.tensors(step.node, inputs),
                                         views.of(dy, step.node));
}

void PlannedGraph::backward(const StagePass& pass, const GraphTensors& tensors,
                            const Saved& saved) const {
    const Values values(*this, pass, tensors, saved, true);
    const GradientViews views(*this, pass, tensors, nullptr);
    auto weight = plan_.weights.begin();
    for (int i = 0; i <= std::ssize(plan_.backward); ++i) {
        for (; weight != plan_.weights.end() && weight->before == i; ++weight) {
            run_weight(pass, *weight, weight->dy, values, views);
        }
        if (i == std::ssize(plan_.backward) || plan_.backward[index_of(i)].keeps) continue;
        run_backward(pass, plan_.backward[index_of(i)], values, views);
    }
}

void PlannedGraph::backward_input(const StagePass& pass, const GraphTensors& tensors,
                                  const Saved& saved, const Gradients& gradients) const {
    const Values values(*this, pass, tensors, saved, true);
    const GradientViews views(*this, pass, tensors, &gradients);
    for (const BackwardStep& step : plan_.backward) run_backward(pass, step, values, views);
}

void PlannedGraph::backward_weight(const StagePass& pass, const GraphTensors& tensors,
                                   const Saved& saved, const Gradients& gradients) const {
    const Values values(*this, pass, tensors, saved, true);
    const GradientViews views(*this, pass, tensors, &gradients);
    for (const WeightStep& step : plan_.weights) {
        run_weight(pass, step, step.kept, values, views);
    }
}

BlockWork PlannedGraph::work(int64_t seq_length) const {
    BlockWork work;
    for (size_t node = 0; node < nodes_.size(); ++node) {
        if (!nodes_[node].operation) continue;
        const int64_t rows = nodes_[node].rows;
        BlockWork of = nodes_[node].operation->work(seq_length_ > 0 ? rows : seq_length);
        if (!plan_.recomputed[node]) {
            for (MovedElements* const moved : {&of.moved, &of.moved_of_residual}) {
                moved->recompute = moved->recompute_heads = 0;
            }
        } else {
            of.recompute_flops = of.flops();
        }
        if (seq_length_ > 0) {
            of.scale(static_cast<double>(rows) / static_cast<double>(seq_length_));
        }
        work.add(of);
    }
    return work;
}

}  // namespace vocabpipe
