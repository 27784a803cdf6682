// SPDX-License-Identifier: Apache-2.0
// Losses of a model of the user's, and what else leaves it. A loss is a number per row; what the
// step minimises is their sum with the weights of labels (Microbatch::loss_gradient). Row i of the
// R rows that a sequence of s tokens has here belongs to token i s / R.
#include "src/model/blocks/graph/operations.hpp"
#include "src/model/blocks/graph/result_memory.hpp"
#include "vocabpipe/error.hpp"

#include <string>
#include <utility>

namespace vocabpipe {

std::span<const float> columns_of_data(const StagePass& pass, int64_t first, int64_t count) {
    const std::span<const float> all = pass.microbatch.columns;
    const int64_t tokens = pass.microbatch.size();
    const int64_t there = tokens == 0 ? 0 : std::ssize(all) / tokens;
    if (tokens > 0 && (count > there || first > there - count)) {
        throw UsageError("ModelConfig::model_forward: reads the columns " + std::to_string(first) +
                         " to " + std::to_string(first + count - 1) +
                         " of the data, but microbatch " + std::to_string(pass.microbatch.index) +
                         " has " + std::to_string(there) + "; set SampleForm::columns");
    }
    return all.subspan(static_cast<size_t>(first * tokens), static_cast<size_t>(count * tokens));
}

namespace {

/// What all losses share.
class LossOperation : public Operation {
public:
    explicit LossOperation(int64_t rows) : rows_(rows) {}

    [[nodiscard]] bool is_loss() const override { return true; }
    [[nodiscard]] ScratchSize scratch(const ScratchFor& use) const override {
        return {.workspace = use.sequences * rows_ * size_of(DType::fp32)};
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor /*y*/) const override {
        const Tensor losses(pass.scratch.workspace.data(), tensors.inputs[0].rows, 1, DType::fp32);
        find_losses(pass, tensors.inputs[0], losses);
        pass.op().add_weighted_losses(pass.ctx, losses, pass.microbatch.loss_gradient, stride(pass),
                                      pass.loss);
    }

protected:
    /// losses (n, 1) of x (n, columns).
    virtual void find_losses(const StagePass& pass, ConstTensor x, Tensor losses) const = 0;

    /// Tokens of a row.
    [[nodiscard]] int64_t stride(const StagePass& pass) const {
        return pass.microbatch.seq_length / rows_;
    }

private:
    int64_t rows_;
};

class CrossEntropyOperation final : public LossOperation {
public:
    CrossEntropyOperation(int64_t rows, int64_t columns) : LossOperation(rows), columns_(columns) {}

    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return {.moved = {.forward = columns_, .backward = 2 * columns_}};
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*dy*/,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().cross_entropy_backward(pass.ctx, tensors.inputs[0], pass.microbatch.labels,
                                         pass.microbatch.loss_gradient, stride(pass), dx[0]);
    }

private:
    void find_losses(const StagePass& pass, ConstTensor x, Tensor losses) const override {
        pass.op().cross_entropy_forward(pass.ctx, x, pass.microbatch.labels, stride(pass), losses);
    }

    int64_t columns_;
};

class SquaredErrorOperation final : public LossOperation {
public:
    SquaredErrorOperation(int64_t rows, int64_t columns, int64_t first_target)
        : LossOperation(rows), columns_(columns), first_target_(first_target) {}

    [[nodiscard]] bool reads_inputs() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return {.moved = {.forward = 2 * columns_, .backward = 3 * columns_}};
    }
    void backward_input(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*dy*/,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().squared_error_backward(pass.ctx, tensors.inputs[0], targets(pass),
                                         pass.microbatch.loss_gradient, stride(pass), dx[0]);
    }

private:
    [[nodiscard]] std::span<const float> targets(const StagePass& pass) const {
        return columns_of_data(pass, first_target_, columns_);
    }
    void find_losses(const StagePass& pass, ConstTensor x, Tensor losses) const override {
        pass.op().squared_error_forward(pass.ctx, x, targets(pass), stride(pass), losses);
    }

    int64_t columns_;
    int64_t first_target_;
};

/// Reads the losses themselves, (n, 1) in the run's type.
class OwnLossOperation final : public LossOperation {
public:
    using LossOperation::LossOperation;

    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return {.moved = {.forward = 2, .backward = 2}};
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/,
                        ConstTensor /*dy*/, ConstTensor /*added*/,
                        std::span<const Tensor> dx) const override {
        const ConstTensor weights(pass.microbatch.loss_gradient.data(), dx[0].rows, 1, stride(pass),
                                  DType::fp32);
        pass.op().convert(pass.ctx, weights, dx[0]);
    }

private:
    void find_losses(const StagePass& pass, ConstTensor x, Tensor losses) const override {
        pass.op().convert(pass.ctx, x, losses);
    }
};

class ResultOperation final : public Operation {
public:
    ResultOperation(std::string name, int64_t columns)
        : name_(std::move(name)), columns_(columns) {}

    [[nodiscard]] bool is_result() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return {.moved = {.forward = 2 * columns_}};
    }
    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor /*y*/) const override {
        pass.op().convert(pass.ctx, tensors.inputs[0],
                          pass.results->of(name_, pass.microbatch.index));
    }
    void backward_input(const StagePass& /*pass*/, const OperationTensors& /*tensors*/,
                        ConstTensor /*dy*/, ConstTensor /*added*/,
                        std::span<const Tensor> /*dx*/) const override {}

private:
    std::string name_;
    int64_t columns_;
};

}  // namespace

std::unique_ptr<Operation> result_operation(const std::string& name, int64_t columns) {
    return std::make_unique<ResultOperation>(name, columns);
}

std::unique_ptr<Operation> cross_entropy_operation(int64_t rows, int64_t columns) {
    return std::make_unique<CrossEntropyOperation>(rows, columns);
}

std::unique_ptr<Operation> squared_error_operation(int64_t rows, int64_t columns,
                                                   int64_t first_target) {
    return std::make_unique<SquaredErrorOperation>(rows, columns, first_target);
}

std::unique_ptr<Operation> own_loss_operation(int64_t rows) {
    return std::make_unique<OwnLossOperation>(rows);
}

}  // namespace vocabpipe
