// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/layer_graph.hpp"

#include "src/model/blocks/graph/graph_access.hpp"
#include "src/model/blocks/graph/graph_record.hpp"
#include "src/model/blocks/graph/operations.hpp"
#include "src/model/blocks/graph/record_layer.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/parameters.hpp"
#include "vocabpipe/error.hpp"

#include <memory>
#include <numeric>
#include <utility>

namespace vocabpipe {

void refuse(const GraphRecord& record, const std::string& why) {
    refuse(record, record.layer, why);
}

void refuse(const GraphRecord& record, int layer, const std::string& why) {
    const std::string function = record.seq_length > 0 ? "model_forward" : "layer_forward";
    throw UsageError("ModelConfig::" + function + ": layer " + text(layer) + ": " + why);
}

void check_columns(const GraphRecord& record, const std::string& what, int64_t columns,
                   int64_t expected) {
    if (columns == expected) return;
    refuse(record,
           what + " has " + text(columns) + " columns where " + text(expected) + " are needed");
}

kernels::AttentionShape checked_heads(const GraphRecord& record, const std::string& what,
                                      kernels::AttentionShape shape) {
    if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
    if (shape.heads < 1 || shape.kv_heads < 1 || shape.head_size < 1 ||
        shape.heads % shape.kv_heads != 0) {
        refuse(record, what + ": " + text(shape.heads) + " heads of " + text(shape.head_size) +
                           " columns with " + text(shape.kv_heads) +
                           " heads of keys and values; the latter must divide the former");
    }
    if (shape.value_head_size < 0) {
        refuse(record, what + ": AttentionShape::value_head_size is " +
                           text(shape.value_head_size) + "; it must be at least 0 (head_size)");
    }
    if (shape.window < 0 || shape.queries != 0) {
        refuse(record, what + ": AttentionShape::window is " + text(shape.window) +
                           " and queries is " + text(shape.queries) +
                           "; a window is at least 0, and all tokens are queries (0)");
    }
    if (!shape.causal && record.seq_length == 0) {
        refuse(record,
               what + ": AttentionShape::causal is false; layers of these models are causal");
    }
    if (!shape.causal && shape.window > 0) {
        refuse(record, what + ": AttentionShape::window is " + text(shape.window) +
                           " where causal is false; set it to 0");
    }
    return shape;
}

int LayerGraph::Access::id(const LayerGraph& graph, LayerValue x) {
    if (x.graph_ != graph.self_) {
        refuse(graph.record_, graph.record_.seq_length > 0 ? "a value of another model"
                                                           : "a value of another layer");
    }
    return x.id_;
}

namespace {

/// FLOPs that take as long as reading or writing an element: between a CPU's 40 and a GPU's 600.
constexpr double kFlopsPerElement = 100;

double cost_of(const GraphRecord& record, const Operation& operation, int64_t rows) {
    const BlockWork work = operation.work(record.seq_length > 0 ? rows : record.model.seq_length);
    const double of_row = work.flops() + kFlopsPerElement * static_cast<double>(work.moved.forward);
    return of_row * static_cast<double>(rows);
}

}  // namespace

LayerValue LayerGraph::Access::make(LayerGraph& graph, std::unique_ptr<Operation> operation,
                                    const std::vector<LayerValue>& inputs, int64_t rows,
                                    int64_t columns, const std::string& name) {
    GraphRecord& record = graph.record_;
    std::vector<int> ids;
    for (const LayerValue& input : inputs) ids.push_back(id(graph, input));
    const double cost = operation ? cost_of(record, *operation, rows) : 0;
    record.nodes.push_back({.operation = std::move(operation),
                            .inputs = std::move(ids),
                            .rows = rows,
                            .columns = columns,
                            .name = name,
                            .layer = record.layer,
                            .cost = cost,
                            .memory_budget = record.memory_budget});
    return {graph.self_, static_cast<int>(std::ssize(record.nodes)) - 1, rows, columns};
}

void LayerGraph::Access::record(LayerGraph& graph, const LayerForward& forward) {
    GraphRecord& record = graph.record_;
    const int64_t columns = record.model.hidden_size;
    const LayerValue y = forward(graph, make(graph, nullptr, {}, 1, columns, "x"));
    check_columns(record, "its output", y.columns(), columns);
    check_read(record, {id(graph, y)});
}

void LayerGraph::Access::check_read(const GraphRecord& record, const std::vector<int>& outputs) {
    std::vector<bool> read(record.nodes.size());
    for (const int output : outputs) read[index_of(output)] = true;
    for (const GraphNode& node : record.nodes) {
        for (const int input : node.inputs) read[index_of(input)] = true;
    }
    for (size_t node = 0; node < read.size(); ++node) {
        const GraphNode& of = record.nodes[node];
        const bool is_end = of.operation && (of.operation->is_loss() || of.operation->is_result());
        if (read[node] || is_end) continue;
        refuse(
            record, of.layer,
            "nothing reads the result of " + of.name + ", which has no gradient then; remove it");
    }
}

void record_layer(LayerGraph& graph, const LayerForward& forward) {
    LayerGraph::Access::record(graph, forward);
}

LayerValue operator+(const LayerValue& a, const LayerValue& b) {
    if (*a.graph_ == nullptr) {
        throw UsageError(
            "a sum of values: one is of a layer or a model that is complete; use values of one");
    }
    return (*a.graph_)->add(a, b);
}

const ModelConfig& LayerGraph::model() const {
    return record_.model;
}

int LayerGraph::layer() const {
    return record_.layer;
}

std::string LayerGraph::full_name(const std::string& name) const {
    const std::string& group = record_.shared;
    return group.empty() ? layer_prefix(record_.model, record_.layer) + name
                         : tensor_names(record_.model).layers + "shared." + group + "." + name;
}

LayerValue LayerGraph::linear(const std::string& name, LayerValue x, const LinearValue& options) {
    if (options.out.empty()) refuse(record_, "linear " + name + ": LinearValue::out is empty");
    for (const int64_t out : options.out) {
        if (out >= 1) continue;
        refuse(record_, "linear " + name + ": LinearValue::out has " + text(out) +
                            "; every result needs at least 1 column");
    }
    const int64_t columns = std::reduce(options.out.begin(), options.out.end(), int64_t{0});
    if (!options.parts.empty() && options.parts.size() != options.out.size()) {
        refuse(record_, "linear " + name + ": " + text(std::ssize(options.parts)) +
                            " names in LinearValue::parts for " + text(std::ssize(options.out)) +
                            " results");
    }
    std::vector<std::string> parts;
    for (const std::string& part : options.parts) parts.push_back(full_name(part));
    return Access::make(*this,
                        linear_operation({.files = {.name = full_name(name),
                                                    .parts = std::move(parts),
                                                    .transposed = options.transposed_in_files},
                                          .out = options.out,
                                          .in = x.columns(),
                                          .bias = options.bias,
                                          .init_std = options.init_std.value_or(model().init_std),
                                          .lora = model().lora},
                                         record_.parameters),
                        {x}, columns, name);
}

LayerValue LayerGraph::layer_norm(const std::string& name, LayerValue x, float epsilon) {
    return Access::make(*this,
                        norm_operation({.name = full_name(name),
                                        .kind = Normalization::layer_norm,
                                        .size = x.columns(),
                                        .epsilon = epsilon},
                                       model().hidden_size, record_.parameters),
                        {x}, x.columns(), name);
}

LayerValue LayerGraph::rms_norm(const std::string& name, LayerValue x,
                                const kernels::RmsNormOptions& options) {
    return Access::make(*this,
                        norm_operation({.name = full_name(name),
                                        .kind = Normalization::rms_norm,
                                        .size = x.columns(),
                                        .epsilon = options.epsilon,
                                        .weight_offset = options.weight_offset},
                                       model().hidden_size, record_.parameters),
                        {x}, x.columns(), name);
}

LayerValue LayerGraph::head_norm(const std::string& q_name, const std::string& k_name,
                                 LayerValue qkv, const kernels::AttentionShape& heads,
                                 const kernels::RmsNormOptions& options) {
    const auto shape = checked_heads(record_, "head_norm " + q_name, heads);
    if (shape.value_size() != shape.head_size) {
        refuse(record_, "head_norm " + q_name + ": values of " + text(shape.value_size()) +
                            " columns beside keys of " + text(shape.head_size) +
                            "; norm q and k by themselves");
    }
    check_columns(record_, "the input of head_norm " + q_name, qkv.columns(), shape.qkv_columns());
    return Access::make(
        *this,
        head_norm_operation(
            {.q_name = full_name(q_name), .k_name = full_name(k_name), .rms_norm = options},
            {shape, Access::sequence_rows(*this, qkv)}, record_.parameters),
        {qkv}, qkv.columns(), q_name);
}

LayerValue LayerGraph::rotary(LayerValue qkv, const kernels::AttentionShape& heads) {
    const auto shape = checked_heads(record_, "rotary", heads);
    check_columns(record_, "the input of rotary", qkv.columns(), shape.qkv_columns());
    const std::optional<Rope> rope = rope_of_layer(model(), layer());
    if (!rope) {
        refuse(record_,
               "rotary: the model has no rotary positions here; set "
               "ModelConfig::learned_positions = false, or its roped");
    }
    if (record_.seq_length > 0 && qkv.rows() > record_.seq_length) {
        refuse(record_, "rotary: " + text(qkv.rows()) + " rows in a sequence of " +
                            text(record_.seq_length) +
                            " tokens; there are no positions for more rows than tokens");
    }
    if (model().rotary_size() > shape.head_size) {
        refuse(record_, "rotary: the model rotates " + text(model().rotary_size()) +
                            " columns of a head, of which this one has " + text(shape.head_size) +
                            "; set ModelConfig::kv_channels or rotary_channels");
    }
    return Access::make(
        *this,
        rotary_operation(*rope, model().rotary_size(), {shape, Access::sequence_rows(*this, qkv)}),
        {qkv}, qkv.columns(), "rotary");
}

LayerValue LayerGraph::attention(LayerValue qkv, const kernels::AttentionShape& heads) {
    const auto shape = checked_heads(record_, "attention", heads);
    check_columns(record_, "the input of attention", qkv.columns(), shape.qkv_columns());
    return Access::make(*this, attention_operation({shape, Access::sequence_rows(*this, qkv)}),
                        {qkv}, shape.output_columns(), "attention");
}

LayerValue LayerGraph::activation(kernels::Activation activation, LayerValue x) {
    return Access::make(*this, activation_operation(activation, false, x.columns()), {x},
                        x.columns(), "activation");
}

LayerValue LayerGraph::gated(kernels::Activation activation, LayerValue gate_up) {
    const int64_t columns = gate_up.columns() / 2;
    check_columns(record_, "the input of gated()", gate_up.columns(), 2 * columns);
    return Access::make(*this, activation_operation(activation, true, columns), {gate_up}, columns,
                        "gated");
}

LayerValue LayerGraph::add(LayerValue a, LayerValue b) {
    check_columns(record_, "the second term of a sum", b.columns(), a.columns());
    if (b.rows() != a.rows()) {
        refuse(record_, "the second term of a sum has " + text(b.rows()) +
                            " rows in a sequence where " + text(a.rows()) + " are needed");
    }
    return Access::make(*this, sum_operation(a.columns(), model().hidden_size), {a, b}, a.columns(),
                        "a sum");
}

LayerValue LayerGraph::scale(LayerValue x, float factor) {
    return Access::make(*this, scale_operation(factor, x.columns()), {x}, x.columns(), "scale");
}

LayerValue LayerGraph::apply(const LayerOperator& made, const std::vector<LayerValue>& x) {
    const auto check = [&](bool wrong, const std::string& why) {
        if (wrong) refuse(record_, made.name + ": " + why);
    };
    check(made.columns < 1, "LayerOperator::columns is not set");
    check(!made.forward || !made.backward_input,
          "LayerOperator::forward and backward_input must both be set");
    check(!made.weights.empty() && !made.backward_weight,
          "LayerOperator::backward_weight must be set for an operator with weights");
    check(x.empty() || x.size() > kMostOperatorInputs,
          text(std::ssize(x)) + " inputs; from 1 to " + text(kMostOperatorInputs) + " are allowed");
    check(made.rows != 0 && record_.seq_length == 0,
          "LayerOperator::rows is for ModelConfig::model_forward; in a layer all have a row per "
          "token");
    check(made.rows < 0, "LayerOperator::rows is " + text(made.rows) + "; it is at least 0");
    check(made.weights.size() > kMostOperatorWeights,
          text(std::ssize(made.weights)) + " weights; at most " + text(kMostOperatorWeights) +
              " are allowed");
    for (const OperatorWeight& weight : made.weights) {
        check(weight.name.empty() || weight.rows < 1 || weight.cols < 1,
              "a weight needs a name, rows and cols; \"" + weight.name + "\" has " +
                  text(weight.rows) + " rows and " + text(weight.cols) + " columns");
    }
    LayerOperator named = made;
    for (OperatorWeight& weight : named.weights) weight.name = full_name(weight.name);
    std::vector<int64_t> columns;
    for (const LayerValue& input : x) columns.push_back(input.columns());
    return Access::make(*this, own_operation(named, columns, record_.parameters), x,
                        made.rows > 0 ? made.rows : x.front().rows(), made.columns, made.name);
}

void LayerGraph::activation_memory_budget(double share) {
    if (!(share >= 0 && share <= 1)) {
        refuse(record_, "activation_memory_budget: " + std::to_string(share) +
                            " is not a share from 0 to 1");
    }
    record_.memory_budget = share;
}

LayerValue LayerGraph::keep(LayerValue x) {
    record_.nodes[index_of(Access::id(*this, x))].recomputed = false;
    return x;
}

LayerValue LayerGraph::recompute(LayerValue x) {
    GraphNode& node = record_.nodes[index_of(Access::id(*this, x))];
    if (!node.operation) refuse(record_, "recompute: the layer's input is always there");
    if (node.operation->product() != nullptr || node.operation->work(1).heads > 0) {
        refuse(record_, "recompute: " + node.name +
                            " costs as much as in the forward; full recomputation makes it again");
    }
    node.recomputed = true;
    return x;
}

}  // namespace vocabpipe
