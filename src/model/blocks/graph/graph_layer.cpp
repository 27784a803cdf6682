// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/graph_layer.hpp"

#include "src/model/blocks/graph/graph_record.hpp"
#include "src/model/blocks/graph/record_layer.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/layer_graph.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// (rows of x, columns) in the pass's scratch.
Tensor scratch_view(const StagePass& pass, ConstTensor x, int64_t first_column, int64_t columns) {
    const Tensor& all = pass.scratch.rows;
    auto* const begin =
        static_cast<std::byte*>(all.data) + first_column * all.rows * size_of(x.dtype);
    return {begin, x.rows, columns, x.dtype};
}

/// Refuses parameters that files could not tell apart.
class NamedOnce final : public ParameterSource {
public:
    NamedOnce(ParameterSource& source, int layer) : source_(source), layer_(layer) {}

    Parameter* next(LogicalParameter parameter) override {
        std::set<std::string> names;
        for (const FilePart& part : parameter.parts) names.insert(part.name);
        if (names.empty()) names.insert(parameter.name);
        for (const std::string& name : names) {
            if (names_.insert(name).second) continue;
            throw UsageError("ModelConfig::layer_forward: layer " + std::to_string(layer_) +
                             ": two parameters have the name " + name);
        }
        return source_.next(std::move(parameter));
    }

private:
    ParameterSource& source_;
    int layer_;
    std::set<std::string> names_;
};

/// Runs the forward that the user wrote.
std::vector<GraphNode> record(const ModelConfig& config, int layer, ParameterSource& parameters) {
    if (config.moe.experts > 0) {
        throw UsageError("--num-experts " + std::to_string(config.moe.experts) +
                         ": layers of your own (ModelConfig::layer_forward) have no experts of the "
                         "library's; use 0");
    }
    if (config.mtp_num_layers > 0) {
        throw UsageError("--mtp-num-layers " + std::to_string(config.mtp_num_layers) +
                         ": layers of your own (ModelConfig::layer_forward) have no depths; use 0");
    }
    NamedOnce named(parameters, layer);
    GraphRecord record{.model = config, .layer = layer, .parameters = named, .nodes = {}};
    LayerGraph graph(record);
    record_layer(graph, config.layer_forward);
    return std::move(record.nodes);
}

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

}  // namespace

/// Where the values of a pass are. In backwards those that are kept are there.
class GraphLayer::Values {
public:
    Values(const GraphLayer& layer, const StagePass& pass, ConstTensor x, const Saved& saved,
           Tensor out, bool backward)
        : layer_(layer), pass_(pass), x_(x), saved_(saved), out_(out), backward_(backward) {}

    /// Empty: y where it is not wanted, or a value without memory.
    [[nodiscard]] ConstTensor operator[](int node) const {
        const int slot = layer_.plan_.value_of_node[index_of(node)];
        if (slot < 0) return {};
        if (layer_.plan_.values[index_of(slot)].place == ValueSlot::Place::input) return x_;
        return memory(slot);
    }
    /// To be written.
    [[nodiscard]] Tensor memory(int slot) const {
        const ValueSlot& of = layer_.plan_.values[index_of(slot)];
        switch (of.place) {
            case ValueSlot::Place::input:
                return {};
            case ValueSlot::Place::output:
                return out_;
            case ValueSlot::Place::scratch:
                return backward_ ? Tensor() : scratch_view(pass_, x_, of.first_column, of.columns);
            case ValueSlot::Place::costly:
            case ValueSlot::Place::cheap:
                break;
        }
        return saved_.values[index_of(slot)];
    }
    [[nodiscard]] Tensor memory_of(int node) const {
        return memory(layer_.plan_.value_of_node[index_of(node)]);
    }
    [[nodiscard]] OperationTensors tensors(int node, const Inputs& inputs) const {
        return {.inputs = inputs.all(),
                .output = (*this)[node],
                .statistics = saved_.statistics[index_of(node)]};
    }
    [[nodiscard]] Inputs inputs(int node) const {
        Inputs inputs;
        for (const int input : layer_.nodes_[index_of(node)].inputs) inputs.add((*this)[input]);
        return inputs;
    }

private:
    const GraphLayer& layer_;
    const StagePass& pass_;
    ConstTensor x_;
    const Saved& saved_;
    Tensor out_;
    bool backward_;
};

GraphLayer::GraphLayer(const ModelConfig& config, int layer, ParameterSource& parameters)
    : nodes_(record(config, layer, parameters)), plan_(nodes_) {}

GraphLayer::Saved GraphLayer::saved_views(SavedViews& views) const {
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
        saved.statistics.push_back(count > 0 ? memory.statistics(count) : Statistics());
    }
    return saved;
}

GraphLayer::Gradients GraphLayer::gradient_views(TokenViews& views) const {
    Gradients gradients;
    for (const GradientSlot& slot : plan_.gradients) {
        gradients.kept.push_back(slot.place == GradientSlot::Place::kept ? views.take(slot.columns)
                                                                         : Tensor());
    }
    return gradients;
}

ScratchSize GraphLayer::scratch(const ScratchFor& use) const {
    ScratchSize size{.columns = std::max(plan_.forward_columns, plan_.backward_columns),
                     .own_columns = plan_.product_columns};
    for (const GraphNode& node : nodes_) {
        if (node.operation) size = size.or_larger(node.operation->scratch(use));
    }
    return size;
}

void GraphLayer::run(const StagePass& pass, const ForwardStep& step, const Values& values) const {
    const Inputs inputs = values.inputs(step.node);
    const ConstTensor residual = step.residual < 0 ? ConstTensor() : values[step.residual];
    Tensor y = values.memory_of(step.value);
    // Only what the operation leaves besides is wanted.
    if (!y) y = pass.scratch.own_rows(inputs.all()[0].rows, nodes_[index_of(step.value)].columns);
    operation(step.node).forward(pass, values.tensors(step.node, inputs), residual, y);
}

void GraphLayer::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                         Tensor out) const {
    pass.input.all();
    const Values values(*this, pass, x, saved, out, false);
    const auto wanted = [&](const ForwardStep& step) { return out || step.for_backward; };
    // R runs the product and its GELU apart, or the product alone, and must give the bits of F.
    const auto together = [&](const ForwardStep& gelu) {
        if (pass.recompute == Recompute::selective) return !gelu.recomputed;
        return pass.recompute == Recompute::none || gelu.for_backward;
    };
    for (size_t i = 0; i < plan_.forward.size(); ++i) {
        const ForwardStep& step = plan_.forward[i];
        if (!wanted(step)) continue;
        const bool is_product = step.gelu > static_cast<int>(i);
        if (step.gelu < 0 || !together(is_product ? plan_.forward[index_of(step.gelu)] : step)) {
            run(pass, step, values);
        } else if (is_product) {
            operation(step.node).product()->forward_gelu(
                pass, values.inputs(step.node).all()[0], values.memory_of(step.value),
                values.memory_of(plan_.forward[index_of(step.gelu)].value));
        }
    }
    if (out && plan_.copied_to_output >= 0) {
        const ConstTensor made = values[static_cast<int>(nodes_.size()) - 1];
        pass.op().convert(pass.ctx, made, out);
    }
    pass.output.all();
}

void GraphLayer::recompute(const StagePass& pass, ConstTensor x, const Saved& saved) const {
    const Values values(*this, pass, x, saved, {}, false);
    for (const ForwardStep& step : plan_.forward) {
        if (step.recomputed) run(pass, step, values);
    }
}

/// Where the gradients of a pass are.
class GraphLayer::GradientViews {
public:
    GradientViews(const GraphLayer& layer, const StagePass& pass, ConstTensor dy,
                  const Gradients& kept, Tensor dx)
        : plan_(layer.plan_), pass_(pass), dy_(dy), kept_(kept), dx_(dx) {}

    /// Empty: none.
    [[nodiscard]] ConstTensor operator[](int slot) const {
        if (slot < 0) return {};
        const bool of_output = plan_.gradients[index_of(slot)].place == GradientSlot::Place::output;
        return of_output ? dy_ : ConstTensor(memory(slot));
    }
    /// To be written.
    [[nodiscard]] Tensor memory(int slot) const {
        const GradientSlot& of = plan_.gradients[index_of(slot)];
        switch (of.place) {
            case GradientSlot::Place::output:
                return {};
            case GradientSlot::Place::input:
                return dx_;
            case GradientSlot::Place::scratch:
                return scratch_view(pass_, dy_, of.first_column, of.columns);
            case GradientSlot::Place::kept:
                break;
        }
        return kept_.kept[index_of(slot)];
    }

private:
    const GraphPlan& plan_;
    const StagePass& pass_;
    ConstTensor dy_;
    const Gradients& kept_;
    Tensor dx_;
};

void GraphLayer::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                const Saved& saved, const Gradients& gradients, Tensor dx) const {
    pass.input.all();
    const Values values(*this, pass, x, saved, {}, true);
    const GradientViews views(*this, pass, dy, gradients, dx);
    for (const BackwardStep& step : plan_.backward) {
        std::array<Tensor, kMostOperatorInputs> to;
        for (size_t i = 0; i < step.to.size(); ++i) to[i] = views.memory(step.to[i]);
        const ConstTensor from = views[step.dy], added = views[step.added];
        if (step.node >= 0 && step.gelu >= 0) {
            const int before = nodes_[index_of(step.gelu)].inputs[0];
            operation(step.node).product()->backward_input_gelu(pass, from, values[before], to[0]);
        } else if (step.node >= 0) {
            const Inputs inputs = values.inputs(step.node);
            operation(step.node).backward_input(pass, values.tensors(step.node, inputs), from,
                                                added, std::span(to).first(step.to.size()));
        } else if (added) {
            pass.op().add(pass.ctx, from, added, to[0]);
        } else {
            pass.op().convert(pass.ctx, from, to[0]);
        }
    }
    pass.output.all();
}

void GraphLayer::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                 const Saved& saved, const Gradients& gradients) const {
    const Values values(*this, pass, x, saved, {}, true);
    const GradientViews views(*this, pass, dy, gradients, {});
    for (const WeightStep& step : plan_.weights) {
        const Inputs inputs = values.inputs(step.node);
        operation(step.node).backward_weight(pass, values.tensors(step.node, inputs),
                                             views[step.dy]);
    }
}

BlockWork GraphLayer::work(int64_t seq_length) const {
    BlockWork work;
    for (size_t node = 0; node < nodes_.size(); ++node) {
        if (!nodes_[node].operation) continue;
        BlockWork of = nodes_[node].operation->work(seq_length);
        if (!plan_.recomputed[node]) {
            for (MovedElements* const moved : {&of.moved, &of.moved_of_residual}) {
                moved->recompute = moved->recompute_heads = 0;
            }
        }
        work.add(of);
    }
    return work;
}

}  // namespace vocabpipe
