// SPDX-License-Identifier: Apache-2.0
// Operations on each element by itself.
#include "src/model/blocks/graph/operations.hpp"

namespace vocabpipe {

namespace {

/// y = activation(x), or y = activation(gate) * up of gate | up.
class ActivationOperation final : public Operation {
public:
    ActivationOperation(kernels::Activation activation, bool gated, int64_t columns)
        : activation_(activation), gated_(gated), columns_(columns) {}

    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] bool gradient_in_place() const override { return !gated_; }
    [[nodiscard]] bool is_gelu() const override {
        return !gated_ && activation_ == kernels::Activation::gelu_tanh;
    }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const int64_t read = (gated_ ? 2 : 1) * columns_, forward = read + columns_;
        return {.moved = {.forward = forward, .backward = forward + read, .recompute = forward}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        const kernels::Operators& op = pass.op();
        const auto run = gated_ ? op.gated_forward : op.activation_forward;
        run(pass.ctx, activation_, tensors.inputs[0], y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        const kernels::Operators& op = pass.op();
        const auto run = gated_ ? op.gated_backward : op.activation_backward;
        run(pass.ctx, activation_, dy, tensors.inputs[0], dx[0]);
    }

private:
    kernels::Activation activation_;
    bool gated_;
    int64_t columns_;  ///< of y
};

/// Its gradient needs no pass: GraphPlan gives it to both inputs.
class SumOperation final : public Operation {
public:
    SumOperation(int64_t columns, int64_t hidden_size)
        : columns_(columns), of_residual_(columns == hidden_size) {}

    [[nodiscard]] bool is_sum() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        // Gradients of a value that is read twice are added up.
        const MovedElements moved{
            .forward = 3 * columns_, .backward = 3 * columns_, .recompute = 3 * columns_};
        return {.moved = moved, .moved_of_residual = of_residual_ ? moved : MovedElements()};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().add(pass.ctx, tensors.inputs[0], tensors.inputs[1], y);
    }
    void backward_input(const StagePass& /*pass*/, const OperationTensors& /*tensors*/,
                        ConstTensor /*dy*/, ConstTensor /*added*/,
                        std::span<const Tensor> /*dx*/) const override {}

private:
    int64_t columns_;
    bool of_residual_;
};

class ScaleOperation final : public Operation {
public:
    ScaleOperation(float factor, int64_t columns) : factor_(factor), columns_(columns) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] bool gradient_in_place() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return {.moved = {
                    .forward = 2 * columns_, .backward = 2 * columns_, .recompute = 2 * columns_}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().scale(pass.ctx, tensors.inputs[0], factor_, y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().scale(pass.ctx, dy, factor_, dx[0]);
    }

private:
    float factor_;
    int64_t columns_;
};

}  // namespace

std::unique_ptr<Operation> activation_operation(kernels::Activation activation, bool gated,
                                                int64_t columns) {
    return std::make_unique<ActivationOperation>(activation, gated, columns);
}

std::unique_ptr<Operation> sum_operation(int64_t columns, int64_t hidden_size) {
    return std::make_unique<SumOperation>(columns, hidden_size);
}

std::unique_ptr<Operation> scale_operation(float factor, int64_t columns) {
    return std::make_unique<ScaleOperation>(factor, columns);
}

}  // namespace vocabpipe
