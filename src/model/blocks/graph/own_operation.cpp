// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/graph/operations.hpp"

#include <array>
#include <numeric>
#include <utility>

namespace vocabpipe {

namespace {

class OwnOperation final : public Operation {
public:
    OwnOperation(const LayerOperator& made, const std::vector<int64_t>& inputs,
                 ParameterSource& parameters)
        : made_(made), read_(std::reduce(inputs.begin(), inputs.end())) {
        for (const OperatorWeight& weight : made_.weights) {
            held_.push_back(parameters.next({.name = weight.name,
                                             .rows = weight.rows,
                                             .cols = weight.cols,
                                             .init_std = weight.init_std,
                                             .init_constant = weight.init_constant,
                                             .weight_decay = weight.weight_decay,
                                             .gradient_with_previous = !held_.empty()}));
        }
    }

    [[nodiscard]] bool trains() const override { return !made_.weights.empty(); }
    [[nodiscard]] bool reads_inputs() const override { return made_.backward_reads_inputs; }
    [[nodiscard]] bool reads_output() const override { return made_.backward_reads_output; }
    [[nodiscard]] bool cheap() const override { return made_.recompute; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        const int64_t forward = read_ + made_.columns;
        // Like those of heads, its FLOPs are of no product with a weight.
        return {.heads_flops = made_.flops,
                .moved = {.forward = forward, .backward = 2 * forward, .recompute = forward}};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        const Weights weights(held_);
        made_.forward(pass.ctx, pass.microbatch, {.x = tensors.inputs, .weights = weights.values()},
                      y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        const Weights weights(held_);
        made_.backward_input(pass.ctx, pass.microbatch, tensors_of(tensors, weights), dy, dx);
    }
    void backward_weight(const StagePass& pass, const OperationTensors& tensors,
                         ConstTensor dy) const override {
        if (!held_.front()->gradient) return;  // of all, or of none
        const Weights weights(held_);
        made_.backward_weight(pass.ctx, pass.microbatch, tensors_of(tensors, weights), dy,
                              weights.gradients(), pass.weight_gradients.accumulate);
    }

private:
    /// Where the weights are in this pass.
    class Weights {
    public:
        explicit Weights(const std::vector<Parameter*>& held) : count_(held.size()) {
            for (size_t i = 0; i < count_; ++i) {
                values_[i] = held[i]->weight;
                gradients_[i] = held[i]->gradient;
            }
        }
        [[nodiscard]] std::span<const ConstTensor> values() const {
            return std::span(values_).first(count_);
        }
        [[nodiscard]] std::span<const Tensor> gradients() const {
            return std::span(gradients_).first(count_);
        }

    private:
        size_t count_;
        std::array<ConstTensor, kMostOperatorWeights> values_;
        std::array<Tensor, kMostOperatorWeights> gradients_;
    };

    [[nodiscard]] static OperatorTensors tensors_of(const OperationTensors& tensors,
                                                    const Weights& weights) {
        return {.x = tensors.inputs, .y = tensors.output, .weights = weights.values()};
    }

    LayerOperator made_;
    int64_t read_;  ///< columns of all inputs
    std::vector<Parameter*> held_;
};

}  // namespace

std::unique_ptr<Operation> own_operation(const LayerOperator& made,
                                         const std::vector<int64_t>& inputs,
                                         ParameterSource& parameters) {
    return std::make_unique<OwnOperation>(made, inputs, parameters);
}

}  // namespace vocabpipe
