// SPDX-License-Identifier: Apache-2.0
// A whole model of your own, written as its forward alone (ModelConfig::model_forward): any graph
// of values, with one or several inputs and outputs of every stage. Where a stage may begin it says
// pipeline_stage(); the library cuts it there, infers what the stages send each other, and derives
// everything else as for layers of your own (layer_graph.hpp).
#pragma once

#include "vocabpipe/attention_shape.hpp"
#include "vocabpipe/layer_forward.hpp"
#include "vocabpipe/layer_graph.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace vocabpipe {

/// The functions that a ModelForward composes, besides those of LayerGraph. A value has rows()
/// rows of columns() columns in every sequence of the microbatch. Names of parameters belong to the
/// layer in which they are made, as in a LayerGraph: "o" is "transformer.h.3.o.weight" after
/// the third pipeline_stage().
class ModelGraph final : public LayerGraph {
public:
    using LayerGraph::attention;
    using LayerGraph::LayerGraph;

    /// s, tokens of a sequence.
    [[nodiscard]] int64_t seq_length() const;
    /// The embedded tokens, (s, h). Once: keep the value.
    [[nodiscard]] LayerValue embedded_tokens();
    /// Numbers of the data, (s, count): Sample::columns from column `first` on, for example the
    /// pixels of patches.
    [[nodiscard]] LayerValue data_columns(int64_t first, int64_t count);

    /// A stage may begin here: what follows is the next layer (layer() grows by 1, unless the layer
    /// has no value yet). Values of all layers before may be used. Stages hold consecutive layers,
    /// shared out by their costs or by StepSchedule::layers_per_stage.
    void pipeline_stage();

    /// What `make` makes has weights of the group: those that others of the group have, too, by the
    /// same names, whatever their layer. Every use has a copy of them. Their gradients are added up
    /// once per step. At most 200 uses of a weight.
    void share(const std::string& group, const std::function<void()>& make);

    /// y = x + w, a trained row for every row of a sequence.
    [[nodiscard]] LayerValue positions(const std::string& name, LayerValue x);
    /// The same numbers in rows of `columns`: (R, c) becomes (R c / columns, columns). Neighbouring
    /// rows that become one, and the reverse, are pooling and its reverse.
    [[nodiscard]] LayerValue reshape(LayerValue x, int64_t columns);
    /// `count` rows from row `first` on.
    [[nodiscard]] LayerValue row_range(LayerValue x, int64_t first, int64_t count);
    /// The rows of b behind those of a.
    [[nodiscard]] LayerValue join_rows(LayerValue a, LayerValue b);
    /// `count` columns from column `first` on.
    [[nodiscard]] LayerValue column_range(LayerValue x, int64_t first, int64_t count);
    /// Columns side by side, of 2 to kMostOperatorInputs values with equally many rows.
    [[nodiscard]] LayerValue join_columns(const std::vector<LayerValue>& x);
    /// The mean of all rows, (1, columns).
    [[nodiscard]] LayerValue mean_rows(LayerValue x);
    /// Cross-attention: every query of q (R, query_columns) sees all keys of kv (K,
    /// key_value_columns), k | v. Result (R, output_columns).
    [[nodiscard]] LayerValue attention(LayerValue q, LayerValue kv,
                                       const kernels::AttentionShape& shape);

    /// x (s, h) is what the output layer gets. At most once, in the last layer.
    void output(LayerValue x);
    /// Adds the cross-entropy of the rows of logits to the loss. Rows divide s; row i has the
    /// label of token i s / rows, and its weight. A negative label is ignored.
    void cross_entropy(LayerValue logits);
    /// Adds the mean square of x - target of every row, where target are as many columns of the
    /// data as x has, from column `first_target` on. Rows divide s, and have the weight of the
    /// label of token i s / rows.
    void squared_error(LayerValue x, int64_t first_target);
    /// Adds losses (R, 1) of your own, made by apply(): likewise.
    void loss(LayerValue losses);

    /// Returns x, and keeps it of every sequence for TrainedRank::results(), after a step or an
    /// evaluation: what a model predicts, or the vectors of its inputs.
    LayerValue result(const std::string& name, LayerValue x);

    struct ModelAccess;  ///< for the library
};

/// The configuration of a model of your own: `base` with its layers. Of `base` count family (for
/// names), hidden_size, seq_length, vocab_size, tied, dtype, init_std, rotary positions, and what
/// the output layer reads: logit_softcap, label_smoothing, z_loss. plan_step() refuses experts,
/// adapters and depths. Throws UsageError for a forward that is no model.
[[nodiscard]] ModelConfig model_of(ModelForward forward, ModelConfig base = {});

}  // namespace vocabpipe
