// SPDX-License-Identifier: Apache-2.0
#include "src/model/graph_stage.hpp"

#include "src/model/parameters.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// The first layer of a stage, and the one after its last.
ParameterRange layers_of(const GraphCut& cut, int stage) {
    const auto begin = cut.layers_per_stage.begin();
    const int first = std::reduce(begin, begin + stage);
    return {.first = first, .end = first + cut.layers_per_stage[static_cast<size_t>(stage)]};
}

/// The nodes of a stage, with the memory of its parameters.
StageGraph record_stage(const ModelConfig& config, const GraphCut& cut, int stage,
                        std::span<Parameter> parameters) {
    HeldParameters held(parameters);
    ParameterCount others;
    const ParameterRange own = layers_of(cut, stage);
    ModelRecord model = record_model(config, [&](int layer) -> ParameterSource& {
        return layer >= own.first && layer < own.end ? static_cast<ParameterSource&>(held) : others;
    });
    StageGraph part = graph_of_stage(std::move(model), cut.layers_per_stage, stage);
    part.ends.keep_outside_gradients = true;
    part.ends.seq_length = config.seq_length;
    return part;
}

ResultMemory results_of(const std::vector<GraphNode>& nodes, int64_t sequences) {
    ResultMemory results;
    for (const GraphNode& node : nodes) {
        if (!node.operation || !node.operation->is_result()) continue;
        const GraphNode& of = nodes[index_of(node.inputs[0])];
        results.add(node.name, sequences * of.rows, of.columns);
    }
    return results;
}

ScratchFor scratch_for(const ModelConfig& config, const GraphCut& cut,
                       const kernels::Operators& operators) {
    return {.operators = operators,
            .sequences = cut.sequences,
            .seq_length = config.seq_length,
            .dtype = config.dtype,
            .threads = cut.threads};
}

}  // namespace

std::vector<StageTensor> stage_tensors(const ModelConfig& config, const GraphCut& cut) {
    ParameterCount none;
    const ModelRecord model = record_model(config, [&](int) -> ParameterSource& { return none; });
    std::vector<StageTensor> tensors;
    for (const ValueAcross& value : values_across(model, cut.layers_per_stage)) {
        tensors.push_back({.maker = value.maker,
                           .readers = value.readers,
                           .bytes = cut.sequences * model.nodes[index_of(value.node)].size() *
                                    size_of(config.dtype)});
    }
    return tensors;
}

namespace {

/// `layers`: ModelParameters::own_layers.
std::vector<ParameterRows> parameters_of_stage(const std::vector<std::vector<int>>& layers,
                                               const GraphCut& cut, int stage) {
    const ParameterRange own = layers_of(cut, stage);
    std::set<int> before;  // counted by an earlier use
    std::vector<ParameterRows> rows;
    for (int layer = 0; layer < own.end; ++layer) {
        for (const int id : layers[static_cast<size_t>(layer)]) {
            const bool first = before.insert(id).second;
            if (layer < own.first) continue;
            rows.push_back({.id = id, .counted_elsewhere = !first, .layer = layer});
        }
    }
    return rows;
}

}  // namespace

std::vector<ParameterRows> graph_stage_parameters(const ModelConfig& config, const GraphCut& cut,
                                                  int stage) {
    return parameters_of_stage(model_parameters(config).own_layers, cut, stage);
}

std::vector<SharedWeight> shared_weights(const ModelConfig& config, const GraphCut& cut) {
    const ModelParameters model = model_parameters(config);
    std::map<int, SharedWeight> by_id;
    for (int stage = 0; stage < std::ssize(cut.layers_per_stage); ++stage) {
        const std::vector<ParameterRows> rows = parameters_of_stage(model.own_layers, cut, stage);
        for (size_t i = 0; i < rows.size(); ++i) {
            const LogicalParameter& of = model.all[index_of(rows[i].id)];
            SharedWeight& weight = by_id[rows[i].id];
            weight.bytes = of.rows * of.cols * size_of(DType::fp32);
            weight.uses.push_back({.stage = stage, .parameter = i});
        }
    }
    std::vector<SharedWeight> shared;
    for (auto& [id, weight] : by_id) {
        if (weight.uses.size() > 1) shared.push_back(std::move(weight));
    }
    return shared;
}

GraphStage::GraphStage(const ModelConfig& config, const GraphCut& cut, int stage,
                       const kernels::Operators& operators, std::span<Parameter> parameters,
                       const RotaryTables* rotary, Device* device)
    : GraphStage(config, cut, stage, operators, parameters, rotary, device,
                 record_stage(config, cut, stage, parameters)) {}

GraphStage::GraphStage(const ModelConfig& config, const GraphCut& cut, int stage,
                       const kernels::Operators& operators, std::span<Parameter> parameters,
                       const RotaryTables* rotary, Device* device, StageGraph part)
    : sequences_(cut.sequences),
      seq_length_(config.seq_length),
      dtype_(config.dtype),
      recompute_(cut.recompute),
      parameters_(parameters),
      rotary_(rotary),
      device_(device),
      reads_x_(stage == 0 && config.embeds_tokens),
      makes_y_(stage + 1 == std::ssize(cut.layers_per_stage) && config.has_output_layer),
      inputs_(static_cast<size_t>(part.inputs)),
      outputs_(part.ends.outputs.size() - (makes_y_ ? 1 : 0)),
      read_later_(static_cast<size_t>(part.read_later)),
      has_loss_(std::ranges::any_of(
          part.nodes,
          [](const GraphNode& node) { return node.operation && node.operation->is_loss(); })),
      results_(results_of(part.nodes, cut.sequences)),
      graph_(std::move(part.nodes), part.ends),
      scratch_(graph_.scratch(scratch_for(config, cut, operators))),
      whole_scratch_(graph_.whole_scratch(scratch_for(config, cut, operators))) {}

// --- memory --------------------------------------------------------------------------------------

PlannedGraph::Saved GraphStage::saved_views(Views& saved, Views& recomputed) const {
    SavedViews views{.costly = by_sequence(recompute_ == Recompute::full ? recomputed : saved),
                     .cheap = by_sequence(recompute_ == Recompute::none ? saved : recomputed)};
    return graph_.saved_views(views);
}

PlannedGraph::Saved GraphStage::saved_views(Activations activations) const {
    Views saved(activations.saved);
    Views recomputed(activations.recomputed);
    return saved_views(saved, recomputed);
}

PlannedGraph::Gradients GraphStage::gradient_views(Views& memory) const {
    TokenViews views = by_sequence(memory);
    return graph_.gradient_views(views);
}

Scratch GraphStage::scratch_views(Views& memory, const ScratchSize& size) const {
    return {.rows = by_sequence(memory).take(std::max(size.columns, size.own_columns)),
            .workspace = memory.take_bytes(size.workspace)};
}

StageBytes GraphStage::bytes() const {
    StageBytes bytes;
    Views saved, recomputed, for_weight, scratch, backward;
    static_cast<void>(saved_views(saved, recomputed));
    static_cast<void>(gradient_views(for_weight));
    static_cast<void>(scratch_views(scratch, scratch_));
    static_cast<void>(scratch_views(backward, whole_scratch_));
    bytes.saved = saved.used();
    bytes.recomputed = recomputed.used();
    bytes.for_weight = for_weight.used();
    bytes.forward_workspace = bytes.input_gradient_workspace = bytes.weight_gradient_workspace =
        scratch.used();
    bytes.backward_workspace = backward.used();
    return bytes;
}

// --- losses --------------------------------------------------------------------------------------

void GraphStage::begin_step(int microbatches) {
    results_.begin_step(*device_, microbatches);
    if (!has_loss_) return;
    microbatches_ = static_cast<size_t>(microbatches);
    const uint64_t bytes = microbatches_ * sizeof(double);
    if (losses_.size() < bytes) {
        losses_ = device_->allocate(bytes, "the losses of a stage");
        zeros_ = device_->allocate_staging(bytes);
        std::memset(zeros_.data(), 0, bytes);
    }
    device_->enqueue_upload(zeros_.bytes().first(bytes), losses_.data());
}

std::span<const double> GraphStage::losses() const {
    return {reinterpret_cast<const double*>(losses_.data()), microbatches_};
}

// --- passes --------------------------------------------------------------------------------------

/// The tensors of a pass, in the order of StageGraph.
class GraphStage::Ends {
public:
    Ends(const GraphStage& stage, ConstTensor x, std::span<const Bytes> tensors)
        : stage_(stage), rest_(tensors) {
        if (stage.reads_x_) inputs_.push_back(x);
        take(stage.inputs_, inputs_);
        all_ = {.units = stage.sequences_, .dtype = stage.dtype_, .inputs = inputs_};
    }

    Ends& with_outputs(Tensor y) {
        take(stage_.outputs_, outputs_);
        if (stage_.makes_y_) outputs_.push_back(y);
        all_.outputs = outputs_;
        return *this;
    }
    Ends& with_gradients(ConstTensor dy, Tensor dx) {
        take(stage_.outputs_, outside_gradients_);
        if (stage_.makes_y_) outside_gradients_.push_back(dy);
        take(stage_.read_later_, outside_gradients_);
        if (stage_.reads_x_) input_gradients_.push_back(dx);
        take(stage_.inputs_, input_gradients_);
        all_.outside_gradients = outside_gradients_;
        all_.input_gradients = input_gradients_;
        return *this;
    }
    [[nodiscard]] const GraphTensors& all() const { return all_; }

private:
    template <class AnyTensor>
    void take(size_t count, std::vector<AnyTensor>& into) {
        for (const Bytes& memory : rest_.first(count)) {
            const auto elements = std::ssize(memory) / size_of(stage_.dtype_);
            into.emplace_back(memory.data(), 1, elements, stage_.dtype_);
        }
        rest_ = rest_.subspan(count);
    }

    const GraphStage& stage_;
    std::span<const Bytes> rest_;
    std::vector<ConstTensor> inputs_, outside_gradients_;
    std::vector<Tensor> outputs_, input_gradients_;
    GraphTensors all_;
};

StagePass GraphStage::begin_pass(Context& ctx, const Microbatch& microbatch, Bytes workspace,
                                 const ScratchSize& size) const {
    if (microbatch.sequences != sequences_ || microbatch.seq_length != seq_length_) {
        throw Error(ExitCode::failed, "stage: microbatch " + std::to_string(microbatch.index) +
                                          " has " + std::to_string(microbatch.sequences) +
                                          " sequences of " + std::to_string(microbatch.seq_length) +
                                          " tokens where " + std::to_string(sequences_) + " of " +
                                          std::to_string(seq_length_) + " are planned");
    }
    Views views(workspace);
    StagePass pass{
        .ctx = ctx, .microbatch = microbatch, .rotary = rotary_, .recompute = recompute_};
    pass.scratch = scratch_views(views, size);
    return pass;
}

void GraphStage::forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                         Activations activations, Bytes workspace) {
    StagePass pass = begin_pass(ctx, microbatch, workspace, scratch_);
    pass.results = &results_;
    if (has_loss_) {
        pass.loss = reinterpret_cast<double*>(losses_.data()) + microbatch.index;
    }
    Ends ends(*this, x, activations.tensors);
    graph_.forward(pass, ends.with_outputs(y).all(), saved_views(activations));
}

void GraphStage::recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                           Activations activations, Bytes workspace) {
    if (recompute_ == Recompute::none) return;
    const StagePass pass = begin_pass(ctx, microbatch, workspace, scratch_);
    const Ends ends(*this, x, activations.tensors);
    if (recompute_ == Recompute::full) {
        graph_.forward_for_backward(pass, ends.all(), saved_views(activations));
    } else {
        graph_.recompute(pass, ends.all(), saved_views(activations));
    }
}

void GraphStage::backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                          Activations activations, Tensor dx, Bytes workspace, bool accumulate) {
    StagePass pass = begin_pass(ctx, microbatch, workspace, whole_scratch_);
    pass.weight_gradients = {.accumulate = accumulate, .with_input = true};
    Ends ends(*this, x, activations.tensors);
    graph_.backward(pass, ends.with_gradients(dy, dx).all(), saved_views(activations));
}

void GraphStage::backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                ConstTensor x, Activations activations, Tensor dx, Bytes for_weight,
                                Bytes workspace) {
    Views views(for_weight);
    Ends ends(*this, x, activations.tensors);
    graph_.backward_input(begin_pass(ctx, microbatch, workspace, scratch_),
                          ends.with_gradients(dy, dx).all(), saved_views(activations),
                          gradient_views(views));
}

void GraphStage::backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                 Activations activations, Bytes for_weight, Bytes workspace,
                                 bool accumulate) {
    Views views(for_weight);
    StagePass pass = begin_pass(ctx, microbatch, workspace, scratch_);
    pass.weight_gradients.accumulate = accumulate;
    const Ends ends(*this, x, activations.tensors);
    graph_.backward_weight(pass, ends.all(), saved_views(activations), gradient_views(views));
}

}  // namespace vocabpipe
