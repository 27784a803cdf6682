// SPDX-License-Identifier: Apache-2.0
// Operations with weights that the library knows: the blocks that its own layers are made of.
#include "src/model/blocks/graph/operations.hpp"

namespace vocabpipe {

namespace {

class LinearOperation final : public Operation {
public:
    LinearOperation(const LinearOptions& options, ParameterSource& parameters)
        : linear_(options, parameters) {}

    [[nodiscard]] bool trains() const override { return true; }
    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool adds_residual() const override { return true; }
    [[nodiscard]] const Linear* product() const override { return &linear_; }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const override {
        return linear_.adapter_scratch(use);
    }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return {.products = {linear_.product()}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor residual,
                 Tensor y) const override {
        linear_.forward_onto(pass, tensors.inputs[0], residual, y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        linear_.backward_input(pass, dy, dx[0]);
    }
    void backward_weight(const StagePass& pass, const OperationTensors& tensors,
                         ConstTensor dy) const override {
        linear_.backward_weight(pass, dy, tensors.inputs[0]);
    }

private:
    Linear linear_;
};

class NormOperation final : public Operation {
public:
    NormOperation(const NormOptions& options, int64_t hidden_size, ParameterSource& parameters)
        : kind_(options.kind),
          of_residual_(options.size == hidden_size),
          norm_(options, parameters) {}

    [[nodiscard]] bool trains() const override { return true; }
    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] bool adds_residual() const override { return true; }
    [[nodiscard]] bool adds_gradient() const override { return true; }
    [[nodiscard]] int64_t statistics() const override { return Norm::statistics(kind_); }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        MovedElements moved = norm_.moved();
        moved.recompute = moved.forward;
        return {.moved = moved, .moved_of_residual = of_residual_ ? moved : MovedElements()};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor residual,
                 Tensor y) const override {
        norm_.forward(pass, tensors.inputs[0], residual, y, tensors.statistics);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor added, std::span<const Tensor> dx) const override {
        norm_.backward_input(pass, dy, tensors.inputs[0], tensors.statistics, added, dx[0]);
    }
    void backward_weight(const StagePass& pass, const OperationTensors& tensors,
                         ConstTensor dy) const override {
        norm_.backward_weight(pass, dy, tensors.inputs[0], tensors.statistics);
    }

private:
    Normalization kind_;
    bool of_residual_;
    Norm norm_;
};

}  // namespace

std::unique_ptr<Operation> linear_operation(const LinearOptions& options,
                                            ParameterSource& parameters) {
    return std::make_unique<LinearOperation>(options, parameters);
}

std::unique_ptr<Operation> norm_operation(const NormOptions& options, int64_t hidden_size,
                                          ParameterSource& parameters) {
    return std::make_unique<NormOperation>(options, hidden_size, parameters);
}

}  // namespace vocabpipe
