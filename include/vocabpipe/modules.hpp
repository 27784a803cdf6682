// SPDX-License-Identifier: Apache-2.0
// Extension points: what a rank computes. VocabPipe's GPT implements them (src/model/); a custom
// trainer brings its own layers and losses by implementing the same classes.
#pragma once

#include "vocabpipe/context.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/tensor.hpp"
#include "vocabpipe/tensor_shard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// One part of the batch as every rank sees it at the start of a step. N = sequences * seq_length.
/// The executor takes the spans in the host's memory and passes them to modules in the device's.
struct Microbatch {
    int index = 0;           ///< within the step, from 0
    int64_t sequences = 0;   ///< sequences
    int64_t seq_length = 0;  ///< tokens per sequence; of a context rank its own (ContextCut)
    std::span<const int32_t> tokens;  ///< (N)
    /// (P N), P = StepSizes::predicted_tokens: of the next token, then of each one after it;
    /// negative: ignored.
    std::span<const int32_t> labels;
    /// g (P N): d(total loss) / d(loss of the token): the label's weight / sum of all weights of
    /// the step, 0 where ignored.
    std::span<const float> loss_gradient;
    /// Sum of g over the labels of the next token; set where g is not in the memory of the host.
    /// With context ranks it must be set: the sum over the tokens of all of them.
    std::optional<double> loss_weight = {};
    /// (N): for every token the first token that it attends to, as an index into its whole
    /// sequence: where its document begins. Empty: 0 for all.
    std::span<const int32_t> first_visible;
    /// (N): for every token the learned position that is added to it. Empty: its index in its whole
    /// sequence. Rotary positions count in distances, and have none of it.
    std::span<const int32_t> positions;
    /// (C, N): numbers of the caller for every token, one column after the other, which a TokenLoss
    /// reads. Empty: none.
    std::span<const float> columns;
    /// N, its tokens.
    [[nodiscard]] int64_t size() const { return sequences * seq_length; }
    /// loss_weight, or that sum.
    [[nodiscard]] double weight() const {
        if (loss_weight) return *loss_weight;
        const auto next =
            loss_gradient.first(std::min(loss_gradient.size(), static_cast<size_t>(size())));
        return std::accumulate(next.begin(), next.end(), 0.0);
    }
};

/// A range of a tensor's elements in row-major order; of a matrix of several rows, whole rows.
struct ElementRange {
    int64_t first = 0;   ///< element
    int64_t count = -1;  ///< -1: all of them

    /// This range of `whole`, a dense matrix or vector.
    [[nodiscard]] Tensor of(Tensor whole) const {
        if (count < 0) return whole;
        if (first % whole.cols == 0 && count % whole.cols == 0) {
            return whole.row_range(first / whole.cols, count / whole.cols);
        }
        return whole.column_range(first, count);
    }
};

/// A weight with everything that lives as long as it does. Matrices are (rows, cols), vectors (1,
/// cols).
struct Parameter {
    std::string name;          ///< Hugging Face's name of the logical tensor
    int64_t first_row = 0;     ///< of the logical tensor, for vocabulary shards
    int64_t logical_rows = 0;  ///< rows of the logical tensor
    int64_t logical_cols = 0;  ///< columns of the logical tensor
    TensorShard shard;         ///< which elements of the logical tensor `weight` has, in order
    Tensor weight;             ///< run's type; what the kernels read
    /// fp32, of `owned`; the same memory as weight in fp32 runs. A frozen bf16 weight has none.
    Tensor master;
    Tensor gradient;            ///< fp32; empty: frozen, or no training
    Tensor exp_avg;             ///< fp32, of `owned`: AdamW's mean of the gradient
    Tensor exp_avg_sq;          ///< fp32, of `owned`: AdamW's mean of its square
    bool weight_decay = false;  ///< matrices yes, biases and norms no
    /// A router's bias: fp32, updated by the load of experts. It has neither gradient nor moments.
    bool correction_bias = false;
    /// Present on another rank too (tied embeddings): counted there for the gradient norm.
    bool counted_elsewhere = false;
    /// The part that this rank updates; `master` and the moments hold only this. For a correction
    /// bias and a frozen parameter the part that this rank saves: all ranks hold the whole, and all
    /// of them update the bias.
    ElementRange owned;
    /// The memory of `owned` within `weight`, which outlives the step where that does not.
    Tensor owned_weight;
    Tensor owned_gradient;  ///< the same within `gradient`
    /// Ranks keep their own part alone: `weight` is there only within passes
    /// (GradientBucket::shards_weights).
    bool shards_weight = false;
    bool shards_gradient = false;  ///< the same for `gradient`
    /// fp32, of an embedding tied to output rows of the same rank: G accumulates here and T in
    /// `gradient`. Reduce adds this to `gradient` and sets it to -0.0. Else empty.
    Tensor token_gradient;

    /// What outlives the step: all of the weight, or `owned_weight`.
    [[nodiscard]] Tensor lasting_weight() const { return shards_weight ? owned_weight : weight; }
    /// The same of the gradient.
    [[nodiscard]] Tensor lasting_gradient() const {
        return shards_gradient ? owned_gradient : gradient;
    }
    /// Where the passes of the parameter's own layer accumulate their gradient.
    [[nodiscard]] Tensor gradient_of_layer() const {
        return token_gradient ? token_gradient : gradient;
    }
};

using Bytes = std::span<std::byte>;

/// What a stage's backward needs of its forward, for one microbatch.
struct Activations {
    Bytes saved;       ///< StageBytes::saved: lives from F on
    Bytes recomputed;  ///< StageBytes::recomputed: scratch of F where R makes it again
    // With StepSizes::predicted_tokens above 1, of the last stage; else empty.
    ConstTensor embedded = {};  ///< F: (N, h), the microbatch's embedded tokens
    /// B and I: (N, h), where the gradient of `embedded` goes. Empty where nobody needs it.
    Tensor embedded_gradient = {};
    /// The tensors of a stage of a graph, in the order of StepSizes::stage_tensors: its inputs;
    /// then in F its outputs; in B and I the gradients of its outputs, those of its inputs from the
    /// next stage that reads them, where there is one, and the gradients of its inputs, which the
    /// pass makes: its own terms added to those of later readers. Empty in a chain.
    std::span<const Bytes> tensors = {};
};

/// The layers of one stage. The x of a stage of a graph is empty but for stage 0 of a model that
/// embeds tokens, and y but for the last stage of a model with an output layer; dy and dx likewise.
class StageModule {
public:
    virtual ~StageModule() = default;
    /// Whether its passes use Context::streamed(). If not, the executor waits for all input rows
    /// first.
    [[nodiscard]] virtual bool streams() const { return false; }
    /// Bytes per microbatch.
    [[nodiscard]] virtual StageBytes bytes() const = 0;
    /// All weights of the stage.
    [[nodiscard]] virtual std::span<Parameter> parameters() = 0;
    /// Before every step, by the executor: sets the losses to 0.
    virtual void begin_step(int /*microbatches*/) {}
    /// [microbatch] of the running step: a loss of the stage's own, as OutputLayer::losses(). Empty
    /// without one.
    [[nodiscard]] virtual std::span<const double> losses() const { return {}; }
    /// fp32, in the device's memory: (microbatches rows, columns) of a result of the running step
    /// (ModelGraph::result()), one microbatch after the other. Empty: the stage has no such result.
    [[nodiscard]] virtual ConstTensor result(const std::string& /*name*/) const { return {}; }
    /// x, y (N, h) in the run's type; fills all of `activations`. With P = predicted_tokens of
    /// StepSizes above 1, y of the last stage is (P N, h), and so is dy below.
    virtual void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                         Activations activations, Bytes workspace) = 0;
    /// R: fills activations.recomputed with the same bits as F, from x and activations.saved.
    /// Workspace as for F. Nothing to do for a stage whose bytes().recomputed is 0.
    virtual void recompute(Context& /*ctx*/, const Microbatch& /*microbatch*/, ConstTensor /*x*/,
                           Activations /*activations*/, Bytes /*workspace*/) {}
    /// B: dx and the gradients of the weights that are not frozen. With `accumulate` it adds to the
    /// gradients; without, in the first pass of the step that writes them, or of a use
    /// (ZeroOptions), it sets them. The default runs I, then W, with for_weight at the front of the
    /// workspace, for which bytes().backward_workspace must have room.
    virtual void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                          Activations activations, Tensor dx, Bytes workspace, bool accumulate) {
        const auto of_weight = static_cast<size_t>(bytes().for_weight);
        const Bytes for_weight = workspace.first(of_weight);
        const Bytes rest = workspace.subspan(of_weight);
        backward_input(ctx, microbatch, dy, x, activations, dx, for_weight, rest);
        backward_weight(ctx, microbatch, x, activations, for_weight, rest, accumulate);
    }
    /// I: dx only; `for_weight` keeps what W needs.
    virtual void backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                                ConstTensor x, Activations activations, Tensor dx, Bytes for_weight,
                                Bytes workspace) = 0;
    /// W: the weights' gradients.
    virtual void backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                 Activations activations, Bytes for_weight, Bytes workspace,
                                 bool accumulate) = 0;
};

/// The rows of the token embedding that live on this rank.
class InputLayer {
public:
    virtual ~InputLayer() = default;
    /// The shard's rows of the embedding, one parameter; or none.
    [[nodiscard]] virtual std::span<Parameter> parameters() = 0;
    /// E: out (N, h) = embeddings of the tokens in this shard, 0 for the others.
    virtual void embed(Context& ctx, const Microbatch& microbatch, Tensor out) = 0;
    /// G: adds dy (N, h) to the rows' gradients, or sets them (accumulate false) to it. With
    /// depths of multi-token prediction it is called once more, for their gradient.
    virtual void gradient(Context& ctx, const Microbatch& microbatch, ConstTensor dy,
                          bool accumulate) = 0;
    /// Reduce, where this rank also has the output rows of a tied weight: adds
    /// Parameter::token_gradient to the gradient. Nothing to do for a layer without one.
    virtual void reduce_tied(Context& /*ctx*/) {}
};

/// The rows of the output projection that live on this rank, with softmax and loss.
class OutputLayer {
public:
    virtual ~OutputLayer() = default;
    /// Whether score() uses Context::streamed().
    [[nodiscard]] virtual bool streams() const { return false; }
    /// The shard's rows of the projection, one parameter; or none.
    [[nodiscard]] virtual std::span<Parameter> parameters() = 0;
    /// Before every step, by the executor: sets the losses to 0.
    virtual void begin_step(int /*microbatches*/) {}
    /// [microbatch] of the running step: sum over tokens of loss_n * |g_n|, so with g = 1 / counted
    /// tokens its share of the mean loss. Equal on every rank with output rows. In the device's
    /// memory; empty if the layer computes no loss.
    [[nodiscard]] virtual std::span<const double> losses() const { return {}; }
    /// [depth][microbatch] The same for the rows of each depth of multi-token prediction, which
    /// losses() does not count. Empty without depths and in evaluations.
    [[nodiscard]] virtual std::span<const double> depth_losses() const { return {}; }
    /// With StepWork::records the R numbers of ModelPartition::made_records() for every token of
    /// the running step: fp32 (microbatches R, N), in the device's memory. Row j R + i is number i
    /// of microbatch j, in the order of TokenRecords. A microbatch of M < N tokens has R rows of M
    /// from the beginning of row j R on. Only on the rank with the first row of the vocabulary, and
    /// with TokenRecord::label_rank on every rank with output rows: that is then the number of this
    /// rank's own rows before the label, the label included. Empty elsewhere, and without records
    /// to store.
    [[nodiscard]] virtual ConstTensor records() const { return {}; }
    /// S. x (N, h); exp_logits (N, columns), all of ShardBytes::exp_logits; statistics (N,
    /// StepSizes::statistics) fp32, of this shard's logits z: a reference m near their maximum;
    /// sum of exp(z - m) over all rows but the label's; the label's z, 0 if another shard has it;
    /// sum of z, with label smoothing; then what records need (vocabulary_loss.hpp).
    virtual void score(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor exp_logits,
                       Tensor statistics, Bytes workspace) = 0;
    /// The un-normalised input gradient u (N, h) fp32 = exp_logits W: in S with one barrier, else
    /// in T.
    virtual void input_product(Context& ctx, ConstTensor exp_logits, Tensor u) = 0;
    /// After C1. statistics (K N, StepSizes::statistics): of all K shards in order; this shard is
    /// `member`. factors (N, StepSizes::factors) fp32, or empty in evaluation: the factor of the
    /// token's row of exp_logits, and the gradient of the label's logit. Makes the microbatch's
    /// loss and records.
    virtual void combine_softmax(Context& ctx, const Microbatch& microbatch, ConstTensor statistics,
                                 int member, Tensor factors) = 0;
    /// Where StepSizes::keeps_logits, after combine_softmax(): TokenRecord::label_rank of
    /// records(). exp_logits: as score() has left them.
    virtual void rank_labels(Context& /*ctx*/, const Microbatch& /*microbatch*/,
                             ConstTensor /*statistics*/, ConstTensor /*exp_logits*/) {}
    /// T, before anything reads exp_logits: may change them and the factors, both of all the
    /// token's rows. Most losses need no such pass.
    virtual void prepare_gradient(Context& /*ctx*/, Tensor /*exp_logits*/, Tensor /*factors*/) {}
    /// Scales u in place and adds the label rows: this shard's part of dX. In combine_softmax with
    /// one barrier, else in T.
    virtual void finish_input_gradient(Context& ctx, const Microbatch& microbatch,
                                       ConstTensor factors, Tensor u) = 0;
    /// T. accumulate: as in StageModule::backward().
    virtual void weight_gradient(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                                 ConstTensor exp_logits, ConstTensor factors, Bytes workspace,
                                 bool accumulate) = 0;
};

/// Memory of StepSizes::buckets[rank][i] that outlives the step: as many gradients as weights, of
/// which each rank of its group owns a range. Of what ranks share
/// (GradientBucket::shards_gradients, shards_weights) only this rank's own range.
struct RankBucket {
    Bytes gradients;  ///< fp32
    Bytes weights;    ///< in the run's type
};

/// The gradient of one use of a weight that layers share.
struct SharedGradient {
    Bytes gradient;    ///< fp32
    bool own = false;  ///< of a stage of this rank
};

/// Reduce, Report and Update: the passes that run once per step, after all gradients are complete.
class StepModule {
public:
    virtual ~StepModule() = default;
    /// Needed with data parallelism: before Report, this rank's range of the gradients receives the
    /// sum over the replicas; after Update, its range of the weights goes to the others.
    [[nodiscard]] virtual RankBucket bucket(size_t /*index*/) { return {}; }
    /// Where the whole weights of a bucket are that ranks share, for the pass that follows; empty
    /// after it.
    virtual void place_weights(size_t /*bucket*/, Bytes /*whole*/) {}
    /// The same for the gradients.
    virtual void place_gradients(size_t /*bucket*/, Bytes /*whole*/) {}
    [[nodiscard]] virtual int64_t report_bytes() const = 0;  ///< equal on every rank
    /// Reduce: adds the two halves of tied gradients. `received` is the other rank's half, or
    /// empty: this rank has both, which InputLayer::reduce_tied() adds.
    virtual void reduce_tied(Context& ctx, Bytes received) = 0;
    /// Reduce of StepSizes::shared_weights: `gradients` of all uses in order, fp32. Sets this
    /// rank's own to the sum in this order; it may use the memory of the others.
    virtual void reduce_shared(Context& /*ctx*/, std::span<const SharedGradient> /*gradients*/) {}
    /// Report: this rank's part of the report.
    virtual void report(Context& ctx, Bytes mine) = 0;
    /// Update: the optimizer step. `all`: the reports of all ranks, by rank.
    virtual void update(Context& ctx, std::span<const std::byte> all) = 0;
};

/// Everything one rank computes with. Not owned.
struct RankModules {
    std::vector<StageModule*> stages;  ///< [global stage]; null where it lives elsewhere
    InputLayer* input = nullptr;       ///< null without input rows
    OutputLayer* output = nullptr;     ///< null without output rows
    StepModule* step = nullptr;        ///< null: gradients only
};

}  // namespace vocabpipe
