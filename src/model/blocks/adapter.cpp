// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/adapter.hpp"

#include "vocabpipe/operators.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace vocabpipe {

namespace {

/// A as PEFT initialises it: uniform, of the variance 1 / (3 in).
LogicalParameter factor_a(const AdapterOptions& options) {
    LogicalParameter a{
        .name = lora_a_name(options.name),
        .cols = options.in,
        .init_bound = 1 / std::sqrt(static_cast<float>(options.in)),
        .weight_decay = true,
        .adapter = true,
        .cut = options.cut == TensorCut::columns ? TensorCut::columns : TensorCut::repeated};
    for (const AdaptedPart& part : options.parts) {
        a.rows += options.lora.rank;
        a.parts.push_back({.name = lora_a_name(part.module), .count = options.lora.rank});
    }
    return a;
}

/// B, which begins as 0.
LogicalParameter factor_b(const AdapterOptions& options) {
    LogicalParameter b{
        .name = lora_b_name(options.name),
        .cols = options.lora.rank,
        .weight_decay = true,
        .adapter = true,
        .cut = options.cut == TensorCut::rows ? TensorCut::rows : TensorCut::repeated};
    for (const AdaptedPart& part : options.parts) {
        b.rows += part.out;
        if (options.cut == TensorCut::rows) {
            b.ranges.insert(b.ranges.end(), part.ranges.begin(), part.ranges.end());
        }
        if (part.of_rows.empty()) {
            b.parts.push_back({.name = lora_b_name(part.module), .count = part.out});
        }
        for (FilePart rows : part.of_rows) {
            rows.name = lora_b_name(part.module);
            b.parts.push_back(std::move(rows));
        }
    }
    if (b.ranges.size() < 2) b.ranges.clear();
    return b;
}

/// (rows, cols), dense, in the memory of a tensor with as many elements or more.
Tensor dense(Tensor memory, int64_t rows, int64_t cols) {
    return {memory.data, rows, cols, memory.dtype};
}

}  // namespace

std::string lora_a_name(const std::string& module) {
    return std::string(kAdapterPrefix) + module + ".lora_A.weight";
}

std::string lora_b_name(const std::string& module) {
    return std::string(kAdapterPrefix) + module + ".lora_B.weight";
}

Adapter::Adapter(const AdapterOptions& options, ParameterSource& parameters)
    : options_(options),
      a_(parameters.next(factor_a(options))),
      b_(parameters.next(factor_b(options))) {}

template <typename Use>
void Adapter::each_part(int64_t columns, const Use& use) const {
    Columns of;
    for (const AdaptedPart& part : options_.parts) {
        of.first = part.first * columns / options_.out;
        of.count = part.out * columns / options_.out;
        use(of);
        of.row += of.count;
        of.low += options_.lora.rank;
    }
}

Tensor Adapter::reduce(const StagePass& pass, ConstTensor x) const {
    const Tensor low = dense(pass.scratch.adapter_low, x.rows, low_columns());
    pass.op().linear_forward(pass.ctx, x, a_->weight, {}, low);
    pass.op().scale(pass.ctx, low, options_.lora.scale(), low);
    return low;
}

Tensor Adapter::reduce_gradient(const StagePass& pass, ConstTensor dy) const {
    const Tensor low = dense(pass.scratch.adapter_low, dy.rows, low_columns());
    each_part(dy.cols, [&](const Columns& part) {
        pass.op().linear_backward_input(pass.ctx, dy.column_range(part.first, part.count),
                                        ConstTensor(b_->weight).row_range(part.row, part.count),
                                        low.column_range(part.low, options_.lora.rank));
    });
    pass.op().scale(pass.ctx, low, options_.lora.scale(), low);
    return low;
}

void Adapter::add_forward(const StagePass& pass, ConstTensor x, Tensor y) const {
    const ConstTensor low = reduce(pass, x);
    each_part(y.cols, [&](const Columns& part) {
        const Tensor of_part = y.column_range(part.first, part.count);
        pass.op().linear_add_forward(pass.ctx, low.column_range(part.low, options_.lora.rank),
                                     b_->weight.row_range(part.row, part.count), {}, of_part,
                                     dense(pass.scratch.adapter_wide, y.rows, part.count), of_part);
    });
}

void Adapter::add_backward_input(const StagePass& pass, ConstTensor dy, Tensor dx) const {
    const ConstTensor low = reduce_gradient(pass, dy);
    const Tensor of_adapter = dense(pass.scratch.adapter_wide, dx.rows, dx.cols);
    pass.op().linear_backward_input(pass.ctx, low, a_->weight, of_adapter);
    pass.op().add(pass.ctx, dx, of_adapter, dx);
}

void Adapter::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x) const {
    const bool accumulate = pass.weight_gradients.accumulate;
    if (a_->gradient) {
        pass.op().linear_backward_weight(pass.ctx, reduce_gradient(pass, dy), x, a_->gradient, {},
                                         accumulate);
    }
    if (!b_->gradient) return;
    const ConstTensor low = reduce(pass, x);
    each_part(dy.cols, [&](const Columns& part) {
        pass.op().linear_backward_weight(pass.ctx, dy.column_range(part.first, part.count),
                                         low.column_range(part.low, options_.lora.rank),
                                         b_->gradient.row_range(part.row, part.count), {},
                                         accumulate);
    });
}

ScratchSize Adapter::scratch(const ScratchFor& use) const {
    const int64_t in_ranks = options_.cut == TensorCut::columns ? use.tensor : 1;
    const int64_t out_ranks = options_.cut == TensorCut::rows ? use.tensor : 1;
    ScratchSize size{.adapter_low = low_columns(), .adapter_wide = options_.in / in_ranks};
    for (const AdaptedPart& part : options_.parts) {
        size.adapter_wide = std::max(size.adapter_wide, part.out / out_ranks);
    }
    return size;
}

}  // namespace vocabpipe
