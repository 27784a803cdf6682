// SPDX-License-Identifier: Apache-2.0
#include "src/model/predicted_rows.hpp"

#include "vocabpipe/operators.hpp"

#include <cstddef>

namespace vocabpipe {

namespace {

template <typename T>
std::span<T> part_of(const DeviceMemory& memory, int index, int64_t rows) {
    return {reinterpret_cast<T*>(memory.data()) + index * rows, static_cast<size_t>(rows)};
}

template <typename T>
void copy_rows(Context& ctx, std::span<const T> from, int64_t first, std::span<T> to,
               int64_t to_first, int64_t count) {
    ctx.operators().copy(
        ctx, std::as_bytes(from.subspan(static_cast<size_t>(first), static_cast<size_t>(count))),
        std::as_writable_bytes(
            to.subspan(static_cast<size_t>(to_first), static_cast<size_t>(count))));
}

}  // namespace

PredictedRows::PredictedRows(Device& device, int64_t tokens, int predicted, int tensor)
    : device_(device),
      rows_(predicted > 1 && tensor > 1 ? tokens * predicted : 0),
      predicted_(predicted),
      tensor_(tensor) {
    if (rows_ == 0) return;
    by_depth_ = device.allocate(static_cast<uint64_t>(rows_) * sizeof(float),
                                "the losses of a microbatch's tokens by depth");
}

template <typename Copy>
void PredictedRows::each_range(const Copy& copy) const {
    const int64_t count = rows_ / predicted_ / tensor_;
    for (int64_t rank = 0; rank < tensor_; ++rank) {
        for (int64_t depth = 0; depth < predicted_; ++depth) {
            copy((depth * tensor_ + rank) * count, (rank * predicted_ + depth) * count, count);
        }
    }
}

void PredictedRows::begin_step(int microbatches) {
    const auto bytes = static_cast<uint64_t>(rows_ * microbatches) * sizeof(float);
    if (labels_.size() >= bytes) return;
    labels_ = device_.allocate(bytes, "the labels of a step by tensor rank");
    gradients_ = device_.allocate(bytes, "the loss gradients of a step by tensor rank");
}

void PredictedRows::put(Context& ctx, const Microbatch& microbatch) {
    if (!reorders(microbatch)) return;
    const auto labels = part_of<int32_t>(labels_, microbatch.index, rows_);
    const auto gradients = part_of<float>(gradients_, microbatch.index, rows_);
    each_range([&](int64_t by_depth, int64_t row, int64_t count) {
        copy_rows(ctx, microbatch.labels, by_depth, labels, row, count);
        copy_rows(ctx, microbatch.loss_gradient, by_depth, gradients, row, count);
    });
}

Microbatch PredictedRows::ordered(const Microbatch& microbatch) const {
    Microbatch of_x = microbatch;
    if (!reorders(microbatch)) return of_x;
    of_x.labels = part_of<int32_t>(labels_, microbatch.index, rows_);
    of_x.loss_gradient = part_of<float>(gradients_, microbatch.index, rows_);
    return of_x;
}

std::span<const float> PredictedRows::by_depth(Context& ctx, const Microbatch& microbatch,
                                               std::span<const float> values) const {
    if (!reorders(microbatch)) return values;
    const auto out = part_of<float>(by_depth_, 0, rows_);
    each_range([&](int64_t by_depth, int64_t row, int64_t count) {
        copy_rows(ctx, values, row, out, by_depth, count);
    });
    return out;
}

}  // namespace vocabpipe
