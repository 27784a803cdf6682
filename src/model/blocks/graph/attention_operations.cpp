// SPDX-License-Identifier: Apache-2.0
// Operations on rows of q, k and v.
#include "src/model/blocks/graph/operations.hpp"
#include "src/model/blocks/heads.hpp"
#include "src/model/rotary_tables.hpp"

namespace vocabpipe {

namespace {

class HeadNormOperation final : public Operation {
public:
    HeadNormOperation(const QkNormOptions& options, const kernels::AttentionShape& shape,
                      ParameterSource& parameters)
        : shape_(shape), norm_(options, shape, parameters) {}

    [[nodiscard]] bool trains() const override { return true; }
    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] int64_t statistics() const override { return norm_.statistics(shape_); }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const int64_t columns = shape_.qkv_columns();
        return {.moved = {.forward = 2 * columns,
                          .backward = 3 * columns,
                          .recompute_heads = 2 * columns}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        norm_.forward(pass, shape_in_pass(shape_, pass), tensors.inputs[0], tensors.statistics, y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        norm_.backward_input(pass, shape_in_pass(shape_, pass), dy, tensors.inputs[0],
                             tensors.statistics, dx[0]);
    }
    void backward_weight(const StagePass& pass, const OperationTensors& tensors,
                         ConstTensor dy) const override {
        norm_.backward_weight(pass, shape_in_pass(shape_, pass), dy, tensors.inputs[0],
                              tensors.statistics);
    }

private:
    kernels::AttentionShape shape_;
    QkNorm norm_;
};

class RotaryOperation final : public Operation {
public:
    RotaryOperation(const Rope& rope, int64_t rotary_size, const kernels::AttentionShape& shape)
        : rope_(rope), rotary_size_(rotary_size), shape_(shape) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] bool in_place() const override { return true; }
    [[nodiscard]] bool gradient_in_place() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const int64_t rotated = 2 * (shape_.heads + shape_.kv_heads) * rotary_size_;
        return {.moved = {.forward = rotated, .backward = rotated, .recompute_heads = rotated}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        move_to(pass, tensors.inputs[0], y);
        pass.op().rotary_forward(pass.ctx, pass.rotary->of(rope_, pass.microbatch.seq_length),
                                 shape_in_pass(shape_, pass), y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        move_to(pass, dy, dx[0]);
        pass.op().rotary_backward(pass.ctx, pass.rotary->of(rope_, pass.microbatch.seq_length),
                                  shape_in_pass(shape_, pass), dx[0]);
    }

private:
    static void move_to(const StagePass& pass, ConstTensor from, Tensor to) {
        if (from.data != to.data) pass.op().convert(pass.ctx, from, to);
    }

    Rope rope_;
    int64_t rotary_size_;
    kernels::AttentionShape shape_;
};

class AttentionOperation final : public Operation {
public:
    explicit AttentionOperation(const kernels::AttentionShape& shape) : shape_(shape) {}

    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool reads_output() const override { return true; }
    /// The logarithm of the sum of exponentials, of each head.
    [[nodiscard]] int64_t statistics() const override { return shape_.heads; }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const override {
        const kernels::AttentionShape of = with_sequences(shape_, use.sequences, use.seq_length);
        return {.workspace = use.operators.attention_workspace_bytes(of, use.dtype, use.threads)};
    }
    [[nodiscard]] BlockWork work(int64_t seq_length) const override {
        return {.heads_flops = heads_flops(shape_, seq_length),
                .heads = shape_.heads,
                .query_columns = shape_.query_columns(),
                .kv_columns = shape_.kv_columns()};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        attend(pass, shape_in_pass(shape_, pass), tensors.inputs[0], y, tensors.statistics);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        attend_backward(pass, shape_in_pass(shape_, pass), dy, tensors.inputs[0], tensors.output,
                        tensors.statistics, dx[0]);
    }

private:
    kernels::AttentionShape shape_;
};

}  // namespace

std::unique_ptr<Operation> head_norm_operation(const QkNormOptions& options,
                                               const kernels::AttentionShape& shape,
                                               ParameterSource& parameters) {
    return std::make_unique<HeadNormOperation>(options, shape, parameters);
}

std::unique_ptr<Operation> rotary_operation(const Rope& rope, int64_t rotary_size,
                                            const kernels::AttentionShape& shape) {
    return std::make_unique<RotaryOperation>(rope, rotary_size, shape);
}

std::unique_ptr<Operation> attention_operation(const kernels::AttentionShape& shape) {
    return std::make_unique<AttentionOperation>(shape);
}

}  // namespace vocabpipe
