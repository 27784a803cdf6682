// SPDX-License-Identifier: Apache-2.0
// Operations on whole rows and columns, of values of a model. A sequence with R rows of c columns
// is also one row of R c columns: ranges of its rows are ranges of columns there.
#include "src/model/blocks/graph/operations.hpp"
#include "src/model/views.hpp"

#include <numeric>
#include <utility>

namespace vocabpipe {

namespace {

/// With a row for every sequence.
template <class AnyTensor>
AnyTensor by_sequence(AnyTensor x, int64_t rows) {
    return {x.data, x.rows / rows, x.cols * rows, x.dtype};
}

/// What a copy of `columns` per row moves.
BlockWork work_of_copy(int64_t columns) {
    return {.moved = {.forward = 2 * columns, .backward = 2 * columns, .recompute = 2 * columns}};
}

class PositionsOperation final : public Operation {
public:
    PositionsOperation(const std::string& name, int64_t rows, int64_t columns, float init_std,
                       ParameterSource& parameters)
        : rows_(rows),
          columns_(columns),
          weight_(parameters.next({.name = name + ".weight",
                                   .rows = rows,
                                   .cols = columns,
                                   .init_std = init_std,
                                   .weight_decay = true})) {}

    [[nodiscard]] bool trains() const override { return true; }
    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy(columns_);
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().add_positions(pass.ctx, tensors.inputs[0], weight_->weight, rows_, {}, y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().convert(pass.ctx, dy, dx[0]);
    }
    void backward_weight(const StagePass& pass, const OperationTensors& /*tensors*/,
                         ConstTensor dy) const override {
        if (!weight_->gradient) return;
        pass.op().positions_gradient(pass.ctx, dy, rows_, weight_->gradient,
                                     pass.weight_gradients.accumulate);
    }

private:
    int64_t rows_;
    int64_t columns_;
    Parameter* weight_;
};

class ReshapeOperation final : public Operation {
public:
    explicit ReshapeOperation(int64_t columns) : columns_(columns) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] bool in_place() const override { return true; }
    [[nodiscard]] bool gradient_in_place() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy(columns_);
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        copy(pass, tensors.inputs[0], y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        copy(pass, dy, dx[0]);
    }

private:
    static void copy(const StagePass& pass, ConstTensor from, Tensor to) {
        if (from.data == to.data) return;
        pass.op().convert(pass.ctx, {from.data, to.rows, to.cols, from.dtype}, to);
    }

    int64_t columns_;
};

class RowRangeOperation final : public Operation {
public:
    RowRangeOperation(int64_t rows, int64_t columns, int64_t first, int64_t count)
        : rows_(rows), columns_(columns), first_(first), count_(count) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy(columns_);
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().convert(pass.ctx, range(tensors.inputs[0]), by_sequence(y, count_));
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().set_zero(pass.ctx, bytes_of<std::byte>(dx[0]));
        pass.op().convert(pass.ctx, by_sequence(dy, count_), range(dx[0]));
    }

private:
    template <class AnyTensor>
    [[nodiscard]] AnyTensor range(AnyTensor x) const {
        return by_sequence(x, rows_).column_range(first_ * columns_, count_ * columns_);
    }

    int64_t rows_;
    int64_t columns_;
    int64_t first_;
    int64_t count_;
};

class ColumnRangeOperation final : public Operation {
public:
    ColumnRangeOperation(int64_t first, int64_t count) : first_(first), count_(count) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy(count_);
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().convert(pass.ctx, tensors.inputs[0].column_range(first_, count_), y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().set_zero(pass.ctx, bytes_of<std::byte>(dx[0]));
        pass.op().convert(pass.ctx, dy, dx[0].column_range(first_, count_));
    }

private:
    int64_t first_;
    int64_t count_;
};

/// Puts values side by side: columns of rows, or rows of sequences.
class JoinOperation final : public Operation {
public:
    /// `rows`: how many rows of an input are one row here; `columns`: of each input's row here.
    JoinOperation(std::vector<int64_t> rows, std::vector<int64_t> columns, int64_t rows_of_output)
        : rows_(std::move(rows)), columns_(std::move(columns)), rows_of_output_(rows_of_output) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy(std::reduce(columns_.begin(), columns_.end()) / rows_of_output_);
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        each(by_sequence(y, rows_of_output_), [&](size_t i, Tensor part) {
            pass.op().convert(pass.ctx, by_sequence(tensors.inputs[i], rows_[i]), part);
        });
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        each(by_sequence(dy, rows_of_output_), [&](size_t i, ConstTensor part) {
            pass.op().convert(pass.ctx, part, by_sequence(dx[i], rows_[i]));
        });
    }

private:
    /// use(i, the columns of input i).
    template <class AnyTensor, typename Use>
    void each(AnyTensor joined, const Use& use) const {
        int64_t first = 0;
        for (size_t i = 0; i < columns_.size(); first += columns_[i++]) {
            use(i, joined.column_range(first, columns_[i]));
        }
    }

    std::vector<int64_t> rows_;
    std::vector<int64_t> columns_;
    int64_t rows_of_output_;
};

class MeanRowsOperation final : public Operation {
public:
    MeanRowsOperation(int64_t rows, int64_t columns) : rows_(rows), columns_(columns) {}

    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy((rows_ + 1) * columns_ / 2);
    }

    void forward(const StagePass& pass, const OperationTensors& tensors, ConstTensor /*residual*/,
                 Tensor y) const override {
        pass.op().mean_rows(pass.ctx, tensors.inputs[0], rows_, y);
    }
    void backward_input(const StagePass& pass, const OperationTensors& /*tensors*/, ConstTensor dy,
                        ConstTensor /*added*/, std::span<const Tensor> dx) const override {
        pass.op().spread_rows(pass.ctx, dy, rows_, dx[0]);
    }

private:
    int64_t rows_;
    int64_t columns_;
};

class DataColumnsOperation final : public Operation {
public:
    DataColumnsOperation(int64_t first, int64_t count) : first_(first), count_(count) {}

    [[nodiscard]] bool cheap() const override { return true; }
    [[nodiscard]] BlockWork work(int64_t /*seq_length*/) const override {
        return work_of_copy(count_);
    }

    void forward(const StagePass& pass, const OperationTensors& /*tensors*/,
                 ConstTensor /*residual*/, Tensor y) const override {
        const auto tokens = static_cast<size_t>(y.rows);
        pass.op().columns_to_rows(
            pass.ctx,
            columns_of_data(pass, first_, count_).first(tokens * static_cast<size_t>(count_)),
            y.rows, y);
    }
    void backward_input(const StagePass& /*pass*/, const OperationTensors& /*tensors*/,
                        ConstTensor /*dy*/, ConstTensor /*added*/,
                        std::span<const Tensor> /*dx*/) const override {}

private:
    int64_t first_;
    int64_t count_;
};

}  // namespace

std::unique_ptr<Operation> positions_operation(const std::string& name, int64_t rows,
                                               int64_t columns, float init_std,
                                               ParameterSource& parameters) {
    return std::make_unique<PositionsOperation>(name, rows, columns, init_std, parameters);
}

std::unique_ptr<Operation> reshape_operation(int64_t columns) {
    return std::make_unique<ReshapeOperation>(columns);
}

std::unique_ptr<Operation> row_range_operation(int64_t rows, int64_t columns, int64_t first,
                                               int64_t count) {
    return std::make_unique<RowRangeOperation>(rows, columns, first, count);
}

std::unique_ptr<Operation> joined_rows_operation(int64_t rows_of_a, int64_t rows_of_b,
                                                 int64_t columns) {
    return std::make_unique<JoinOperation>(std::vector{rows_of_a, rows_of_b},
                                           std::vector{rows_of_a * columns, rows_of_b * columns},
                                           rows_of_a + rows_of_b);
}

std::unique_ptr<Operation> column_range_operation(int64_t first, int64_t count) {
    return std::make_unique<ColumnRangeOperation>(first, count);
}

std::unique_ptr<Operation> joined_columns_operation(std::vector<int64_t> columns) {
    std::vector<int64_t> rows(columns.size(), 1);
    return std::make_unique<JoinOperation>(std::move(rows), std::move(columns), 1);
}

std::unique_ptr<Operation> mean_rows_operation(int64_t rows, int64_t columns) {
    return std::make_unique<MeanRowsOperation>(rows, columns);
}

std::unique_ptr<Operation> data_columns_operation(int64_t first, int64_t count) {
    return std::make_unique<DataColumnsOperation>(first, count);
}

}  // namespace vocabpipe
