// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/model_graph.hpp"

#include "src/model/blocks/graph/graph_access.hpp"
#include "src/model/blocks/graph/model_record.hpp"
#include "src/model/blocks/graph/named_once.hpp"
#include "src/model/blocks/graph/operations.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace vocabpipe {

namespace {

/// Asks the source of the layer that is being recorded.
class OfCurrentLayer final : public ParameterSource {
public:
    explicit OfCurrentLayer(const ParametersOfLayer& of) : of_(of) {}
    void follow(const GraphRecord& record) { record_ = &record; }

    Parameter* next(LogicalParameter parameter) override {
        return of_(record_->layer).next(std::move(parameter));
    }

private:
    const ParametersOfLayer& of_;
    const GraphRecord* record_ = nullptr;
};

/// Whether the layer that is being recorded has made any.
bool has_values(const GraphRecord& record) {
    return std::ranges::any_of(record.nodes, [&](const GraphNode& node) {
        return node.operation && node.layer == record.layer;
    });
}

}  // namespace

struct ModelGraph::ModelAccess {
    static void check_range(const ModelGraph& graph, const std::string& function,
                            const std::string& unit, int64_t first, int64_t count, int64_t of) {
        if (first >= 0 && count >= 1 && first <= of && count <= of - first) return;
        refuse(graph.record_, function + ": " + text(count) + " " + unit + "s from " + unit + " " +
                                  text(first) + " on, of a value that has " + text(of));
    }
    static void check_loss(const ModelGraph& graph, const std::string& what, LayerValue x) {
        if (graph.seq_length() % x.rows() == 0) return;
        refuse(graph.record_, what + ": its " + text(x.rows()) +
                                  " rows must divide the sequence's " + text(graph.seq_length()) +
                                  " tokens, whose labels and weights they have");
    }
    static void add_loss(ModelGraph& graph, std::unique_ptr<Operation> operation, LayerValue x,
                         const std::string& name) {
        check_loss(graph, name, x);
        static_cast<void>(Access::make(graph, std::move(operation), {x}, 0, name));
    }
};

int64_t ModelGraph::seq_length() const {
    return record_.seq_length;
}

LayerValue ModelGraph::embedded_tokens() {
    if (record_.embedded >= 0) {
        refuse(record_, "embedded_tokens() is called twice; keep the value");
    }
    if (layer() > 0) refuse(record_, "embedded_tokens(): call it in layer 0, and keep the value");
    const LayerValue x =
        Access::make(*this, nullptr, {}, seq_length(), model().hidden_size, "embedded_tokens");
    record_.embedded = Access::id(*this, x);
    return x;
}

LayerValue ModelGraph::data_columns(int64_t first, int64_t count) {
    if (first < 0 || count < 1) {
        refuse(record_, "data_columns: " + text(count) + " columns from column " + text(first) +
                            " on; there is no column before 0, and at least 1 is "
                            "needed");
    }
    return Access::make(*this, data_columns_operation(first, count), {}, seq_length(), count,
                        "data_columns");
}

void ModelGraph::pipeline_stage() {
    if (has_values(record_)) ++record_.layer;
}

void ModelGraph::share(const std::string& group, const std::function<void()>& make) {
    if (group.empty() || !record_.shared.empty()) {
        refuse(record_, group.empty()
                            ? "share: the group has no name"
                            : "share " + group + ": is inside of share " + record_.shared);
    }
    record_.shared = group;
    try {
        make();
    } catch (...) {
        record_.shared.clear();
        throw;
    }
    record_.shared.clear();
}

LayerValue ModelGraph::positions(const std::string& name, LayerValue x) {
    return Access::make(*this,
                        positions_operation(full_name(name), x.rows(), x.columns(),
                                            model().init_std, record_.parameters),
                        {x}, x.columns(), name);
}

LayerValue ModelGraph::reshape(LayerValue x, int64_t columns) {
    const int64_t size = x.rows() * x.columns();
    if (columns < 1 || size % columns != 0) {
        refuse(record_, "reshape: " + text(x.rows()) + " rows of " + text(x.columns()) +
                            " columns cannot be rows of " + text(columns));
    }
    return Access::make(*this, reshape_operation(columns), {x}, size / columns, columns, "reshape");
}

LayerValue ModelGraph::row_range(LayerValue x, int64_t first, int64_t count) {
    ModelAccess::check_range(*this, "row_range", "row", first, count, x.rows());
    return Access::make(*this, row_range_operation(x.rows(), x.columns(), first, count), {x}, count,
                        x.columns(), "row_range");
}

LayerValue ModelGraph::join_rows(LayerValue a, LayerValue b) {
    check_columns(record_, "the second value of join_rows", b.columns(), a.columns());
    return Access::make(*this, joined_rows_operation(a.rows(), b.rows(), a.columns()), {a, b},
                        a.rows() + b.rows(), a.columns(), "join_rows");
}

LayerValue ModelGraph::column_range(LayerValue x, int64_t first, int64_t count) {
    ModelAccess::check_range(*this, "column_range", "column", first, count, x.columns());
    return Access::make(*this, column_range_operation(first, count), {x}, count, "column_range");
}

LayerValue ModelGraph::join_columns(const std::vector<LayerValue>& x) {
    if (x.size() < 2 || x.size() > kMostOperatorInputs) {
        refuse(record_, "join_columns: " + text(std::ssize(x)) + " values; from 2 to " +
                            text(kMostOperatorInputs) + " are allowed");
    }
    std::vector<int64_t> columns;
    for (const LayerValue& value : x) {
        columns.push_back(value.columns());
        if (value.rows() == x.front().rows()) continue;
        refuse(record_, "join_columns: values of " + text(x.front().rows()) + " and " +
                            text(value.rows()) + " rows");
    }
    const int64_t all = std::reduce(columns.begin(), columns.end());
    return Access::make(*this, joined_columns_operation(std::move(columns)), x, all,
                        "join_columns");
}

LayerValue ModelGraph::mean_rows(LayerValue x) {
    return Access::make(*this, mean_rows_operation(x.rows(), x.columns()), {x}, 1, x.columns(),
                        "mean_rows");
}

LayerValue ModelGraph::attention(LayerValue q, LayerValue kv,
                                 const kernels::AttentionShape& heads) {
    const auto shape = checked_heads(record_, "attention", heads);
    if (shape.window != 0) refuse(record_, "attention: cross-attention has no window");
    check_columns(record_, "q of attention", q.columns(), shape.query_columns());
    check_columns(record_, "kv of attention", kv.columns(), shape.key_value_columns());
    return Access::make(*this, cross_attention_operation({shape, kv.rows()}, q.rows()), {q, kv},
                        shape.output_columns(), "attention");
}

void ModelGraph::output(LayerValue x) {
    if (record_.output >= 0) refuse(record_, "output() is called twice; a model has one");
    check_columns(record_, "the output", x.columns(), model().hidden_size);
    if (x.rows() != seq_length()) {
        refuse(record_, "the output has " + text(x.rows()) + " rows in a sequence of " +
                            text(seq_length()) + " tokens; the output layer needs one for each");
    }
    record_.output = Access::id(*this, x);
    record_.layer_of_output = layer();
}

void ModelGraph::cross_entropy(LayerValue logits) {
    ModelAccess::add_loss(*this, cross_entropy_operation(logits.rows(), logits.columns()), logits,
                          "cross_entropy");
}

void ModelGraph::squared_error(LayerValue x, int64_t first_target) {
    if (first_target < 0) {
        refuse(record_, "squared_error: targets from column " + text(first_target) +
                            " on; there is no column before 0");
    }
    ModelAccess::add_loss(*this, squared_error_operation(x.rows(), x.columns(), first_target), x,
                          "squared_error");
}

void ModelGraph::loss(LayerValue losses) {
    check_columns(record_, "the value of loss()", losses.columns(), 1);
    ModelAccess::add_loss(*this, own_loss_operation(losses.rows()), losses, "loss");
}

LayerValue ModelGraph::result(const std::string& name, LayerValue x) {
    for (const GraphNode& node : record_.nodes) {
        if (node.operation && node.operation->is_result() && node.name == name) {
            refuse(record_, "two results have the name " + name);
        }
    }
    const int of = Access::id(*this, x);
    static_cast<void>(Access::make(*this, result_operation(name, x.columns()), {x}, 0, name));
    // Kept by the stage that makes x, wherever the function says so.
    record_.nodes.back().layer = record_.nodes[static_cast<size_t>(of)].layer;
    return x;
}

// --- recording -----------------------------------------------------------------------------------

namespace {

/// Refuses weights that only results depend on.
void check_trained(const GraphRecord& record) {
    std::vector<bool> reaches(record.nodes.size());  // a loss, or the output
    if (record.output >= 0) reaches[index_of(record.output)] = true;
    for (size_t n = record.nodes.size(); n-- > 0;) {
        const GraphNode& node = record.nodes[n];
        if (node.operation && node.operation->is_loss()) reaches[n] = true;
        const bool trains = !node.operation || node.operation->trains();
        if (trains && !reaches[n]) {
            refuse(record, node.layer,
                   "only results depend on " + node.name +
                       ", which no loss trains then; use it for a loss or the output");
        }
        if (!reaches[n]) continue;
        for (const int input : node.inputs) reaches[index_of(input)] = true;
    }
}

void check_model(const GraphRecord& record) {
    if (record.output >= 0 && record.layer_of_output != record.layer) {
        refuse(record, "output() is called in layer " + text(record.layer_of_output) +
                           ", after which pipeline_stage() is; call it last");
    }
    bool has_loss = record.output >= 0;
    for (const GraphNode& node : record.nodes) {
        has_loss = has_loss || (node.operation && node.operation->is_loss());
    }
    if (!has_loss) {
        refuse(record,
               "the model has no loss; call output(), cross_entropy(), squared_error() or "
               "loss()");
    }
}

ModelRecord record_any_layers(const ModelConfig& config, const ParametersOfLayer& parameters) {
    OfCurrentLayer of_layer(parameters);
    NamedOnce named(of_layer);
    GraphRecord record{
        .model = config, .layer = 0, .parameters = named, .seq_length = config.seq_length};
    of_layer.follow(record);
    named.belongs_to(record);
    ModelGraph graph(record);
    config.model_forward(graph);
    if (record.layer > 0 && !has_values(record)) --record.layer;  // after a last pipeline_stage()
    check_model(record);
    std::vector<int> outputs;
    if (record.output >= 0) outputs.push_back(record.output);
    LayerGraph::Access::check_read(record, outputs);
    check_trained(record);
    return {.nodes = std::move(record.nodes),
            .layers = record.layer + 1,
            .embedded = record.embedded,
            .output = record.output};
}

}  // namespace

ModelRecord record_model(const ModelConfig& config, const ParametersOfLayer& parameters) {
    ModelRecord record = record_any_layers(config, parameters);
    const bool as_said = record.layers == config.num_layers &&
                         (record.embedded >= 0) == config.embeds_tokens &&
                         (record.output >= 0) == config.has_output_layer &&
                         !(config.tied && (record.embedded < 0 || record.output < 0));
    if (!as_said) {
        throw UsageError("ModelConfig::model_forward: has " + text(record.layers) +
                         " layers where num_layers is " + text(config.num_layers) +
                         ", or reads tokens or makes an output where embeds_tokens, "
                         "has_output_layer or tied say otherwise; make it with model_of()");
    }
    return record;
}

ModelConfig model_of(ModelForward forward, ModelConfig base) {
    if (!forward) throw UsageError("model_of: the function is empty");
    base.model_forward = std::move(forward);
    ParameterCount none;
    const ModelRecord record =
        record_any_layers(base, [&](int) -> ParameterSource& { return none; });
    base.num_layers = record.layers;
    base.embeds_tokens = record.embedded >= 0;
    base.has_output_layer = record.output >= 0;
    base.tied = base.tied && base.embeds_tokens && base.has_output_layer;
    return base;
}

}  // namespace vocabpipe
