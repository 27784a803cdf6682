// SPDX-License-Identifier: Apache-2.0
// Operations on rows of q, k and v.
#include "src/model/blocks/graph/operations.hpp"
#include "src/model/blocks/heads.hpp"
#include "src/model/rotary_tables.hpp"

namespace vocabpipe {

namespace {

class HeadNormOperation final : public Operation {
public:
    HeadNormOperation(const QkNormOptions& options, const SequenceShape& shape,
                      ParameterSource& parameters)
        : shape_(shape), norm_(options, shape.shape, parameters) {}

    [[nodiscard]] bool trains() const override { return true; }
    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] int64_t statistics() const override { return norm_.statistics(shape_.shape); }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const int64_t columns = shape_.shape.qkv_columns();
        return {.moved = {.forward = 2 * columns,
                          .backward = 3 * columns,
                          .recompute_heads = 2 * columns}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        norm_.forward(pass, shape_.in_pass(pass), tensors.inputs[0], tensors.statistics, y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        norm_.backward_input(pass, shape_.in_pass(pass), dy, tensors.inputs[0], tensors.statistics,
                             dx[0]);
    }
    void backward_weight(const StagePass& pass, const OperationTensors& tensors,
                         ConstTensor dy) const override {
        norm_.backward_weight(pass, shape_.in_pass(pass), dy, tensors.inputs[0],
                              tensors.statistics);
    }

private:
    SequenceShape shape_;
    QkNorm norm_;
};

class RotaryOperation final : public Operation {
public:
    RotaryOperation(const Rope& rope, int64_t rotary_size, const SequenceShape& shape)
        : rope_(rope), rotary_size_(rotary_size), shape_(shape) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] bool in_place() const override { return true; }
    [[nodiscard]] bool gradient_in_place() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const int64_t rotated = 2 * (shape_.shape.heads + shape_.shape.kv_heads) * rotary_size_;
        return {.moved = {.forward = rotated, .backward = rotated, .recompute_heads = rotated}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        move_to(pass, tensors.inputs[0], y);
        pass.op().rotary_forward(pass.ctx, pass.rotary->of(rope_, pass.microbatch.seq_length),
                                 shape_.in_pass(pass), y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        move_to(pass, dy, dx[0]);
        pass.op().rotary_backward(pass.ctx, pass.rotary->of(rope_, pass.microbatch.seq_length),
                                  shape_.in_pass(pass), dx[0]);
    }

private:
    static void move_to(const StagePass& pass, ConstTensor from, Tensor to) {
        if (from.data != to.data) pass.op().convert(pass.ctx, from, to);
    }

    Rope rope_;
    int64_t rotary_size_;
    SequenceShape shape_;
};

class AttentionOperation final : public Operation {
public:
    explicit AttentionOperation(const SequenceShape& shape) : shape_(shape) {}

    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool reads_output() const override { return true; }
    /// The logarithm of the sum of exponentials, of each head.
    [[nodiscard]] int64_t statistics() const override { return shape_.shape.heads; }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const override {
        const kernels::AttentionShape of = shape_.in_use(use);
        return {.workspace = use.operators.attention_workspace_bytes(of, use.dtype, use.threads)};
    }
    [[nodiscard]] BlockWork work(int64_t seq_length) const override {
        return {.heads_flops = heads_flops(shape_.shape, seq_length),
                .heads = shape_.shape.heads,
                .query_columns = shape_.shape.query_columns(),
                .kv_columns = shape_.shape.key_value_columns()};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        const kernels::AttentionShape shape = shape_.in_pass(pass);
        const ConstTensor qkv = tensors.inputs[0];
        pass.op().causal_attention_forward(pass.ctx, queries_of(qkv, shape),
                                           keys_values_of(qkv, shape), shape, visible(pass, shape),
                                           y, tensors.statistics, pass.scratch.workspace);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        const kernels::AttentionShape shape = shape_.in_pass(pass);
        const ConstTensor qkv = tensors.inputs[0];
        pass.op().causal_attention_backward(
            pass.ctx, dy, queries_of(qkv, shape), keys_values_of(qkv, shape), tensors.output,
            tensors.statistics, shape, visible(pass, shape), queries_of(dx[0], shape),
            keys_values_of(dx[0], shape), pass.scratch.workspace);
    }

private:
    /// Where documents begin, of the tokens of whole sequences.
    static std::span<const int32_t> visible(const StagePass& pass,
                                            const kernels::AttentionShape& shape) {
        const bool limits = shape.causal && shape.seq_length == pass.microbatch.seq_length;
        return limits ? pass.microbatch.first_visible : std::span<const int32_t>();
    }

    SequenceShape shape_;
};

/// Queries of one value, keys and values of another.
class CrossAttentionOperation final : public Operation {
public:
    CrossAttentionOperation(const SequenceShape& keys, int64_t queries) : keys_(keys) {
        keys_.shape.causal = false;
        keys_.shape.queries = queries;
    }

    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool reads_output() const override { return true; }
    [[nodiscard]] int64_t statistics() const override { return keys_.shape.heads; }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const override {
        return {.workspace = use.operators.attention_workspace_bytes(keys_.in_use(use), use.dtype,
                                                                     use.threads)};
    }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const kernels::AttentionShape& of = keys_.shape;
        return {.heads_flops = 2 * static_cast<double>((of.query_columns() + of.output_columns()) *
                                                       keys_.rows),
                .heads = of.heads,
                .query_columns = of.query_columns(),
                .kv_columns = of.key_value_columns() * keys_.rows / of.queries};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().causal_attention_forward(pass.ctx, tensors.inputs[0], tensors.inputs[1],
                                           keys_.in_pass(pass), {}, y, tensors.statistics,
                                           pass.scratch.workspace);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().causal_attention_backward(pass.ctx, dy, tensors.inputs[0], tensors.inputs[1],
                                            tensors.output, tensors.statistics, keys_.in_pass(pass),
                                            {}, dx[0], dx[1], pass.scratch.workspace);
    }

private:
    SequenceShape keys_;
};

}  // namespace

std::unique_ptr<Operation> head_norm_operation(const QkNormOptions& options,
                                               const SequenceShape& shape,
                                               ParameterSource& parameters) {
    return std::make_unique<HeadNormOperation>(options, shape, parameters);
}

std::unique_ptr<Operation> rotary_operation(const Rope& rope, int64_t rotary_size,
                                            const SequenceShape& shape) {
    return std::make_unique<RotaryOperation>(rope, rotary_size, shape);
}

std::unique_ptr<Operation> attention_operation(const SequenceShape& shape) {
    return std::make_unique<AttentionOperation>(shape);
}

std::unique_ptr<Operation> cross_attention_operation(const SequenceShape& shape, int64_t queries) {
    return std::make_unique<CrossAttentionOperation>(shape, queries);
}

}  // namespace vocabpipe
