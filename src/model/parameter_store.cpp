// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_store.hpp"

#include "kernels/host/random.hpp"
#include "src/model/parameters.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/model/upload_values.hpp"
#include "src/model/views.hpp"
#include "vocabpipe/operators.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace vocabpipe {

namespace {

/// Weights and gradients of a parameter begin at the same element of their memory in every type, so
/// that replicas exchange the same range of both (gradient_buckets.hpp).
struct Layout {
    explicit Layout(DType type)
        : biases(kBucketAlignment * 4),
          frozen(kBucketAlignment * size_of(type)),
          weights(kBucketAlignment * size_of(type)),
          masters(kBucketAlignment * 4),
          gradients(kBucketAlignment * 4),
          moments(kBucketAlignment * 4) {}
    // What replicas do not exchange: correction biases, and frozen weights.
    Views biases, frozen;
    Views weights, masters, gradients, moments;
};

/// fp32 values of the elements that a replica updates; in a matrix these are whole rows.
Tensor take_owned(Views& views, const ElementRange& owned, int64_t rows, int64_t cols) {
    if (owned.count < 0) return views.take(rows, cols, DType::fp32);
    const bool whole_rows = owned.first % cols == 0 && owned.count % cols == 0;
    return whole_rows ? views.take(owned.count / cols, cols, DType::fp32)
                      : views.take(1, owned.count, DType::fp32);
}

/// Where a tensor is between passes whose ranks keep their own part of it alone: not null, because
/// the model has it, and nothing that can be read.
void* nowhere() {
    return reinterpret_cast<void*>(kBucketAlignment);
}

/// Which bucket a parameter is in, and behind how many of its elements.
struct InBucket {
    const ParameterBucket* bucket = nullptr;
    int64_t begin = 0;

    [[nodiscard]] bool shards_weights() const {
        return bucket != nullptr && bucket->cut.shards_weights;
    }
    [[nodiscard]] bool shards_gradients() const {
        return bucket != nullptr && bucket->cut.shards_gradients;
    }
    /// The elements of the bucket's own part before those of the parameter, and how many it has
    /// there, whose padding included.
    [[nodiscard]] ElementRange own(int64_t memory_size) const {
        const ElementRange all = bucket->own();
        const int64_t end = all.first + all.count;
        const int64_t first = std::clamp(begin, all.first, end);
        const int64_t last = std::clamp(begin + padded_elements(memory_size), all.first, end);
        return {first - all.first, last - first};
    }
};

std::vector<InBucket> buckets_of(const std::vector<ParameterBucket>& buckets, size_t parameters) {
    std::vector<InBucket> found(parameters);
    for (const ParameterBucket& bucket : buckets) {
        for (size_t i = 0; i < bucket.parameters.size(); ++i) {
            found[bucket.parameters[i]] = {&bucket, bucket.begins[i]};
        }
    }
    return found;
}

/// The part of a parameter that this rank keeps; its memory is the bucket's own part, one parameter
/// behind the other.
Tensor take_kept(Views& views, const InBucket& place, const ParameterRows& part, DType type) {
    const int64_t cols = part.shard.column_count();
    const Bytes kept = views.take_bytes(place.own(part.memory_size()).count * size_of(type));
    const Tensor shape(kept.data(), part.shard.row_count(), cols, type);
    return ElementRange{0, part.owned.count}.of(shape);
}

/// Cuts the allocations into tensors; with null memory it only counts.
std::vector<Parameter> lay_out(const ModelConfig& config, const std::vector<ParameterRows>& rows,
                               const std::vector<ParameterBucket>& buckets, bool training,
                               Layout& layout) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    const std::vector<InBucket> in_bucket = buckets_of(buckets, rows.size());
    std::vector<Parameter> parameters(rows.size());
    for (const size_t i : memory_order(rows)) {
        const ParameterRows& part = rows[i];
        const LogicalParameter& of = logical[static_cast<size_t>(part.id)];
        const int64_t row_count = part.shard.row_count();
        const int64_t cols = part.shard.column_count();
        Parameter& p = parameters[i];
        p.name = of.name;
        p.first_row = part.shard.rows.front().first;
        p.logical_rows = of.rows;
        p.logical_cols = of.cols;
        p.shard = part.shard;
        p.weight_decay = of.weight_decay;
        p.correction_bias = of.correction_bias;
        p.counted_elsewhere = part.counted_elsewhere;
        p.owned = part.owned;
        const auto take = [&](Views& views, DType dtype) {
            return views.take(part.memory_rows, cols, dtype).row_range(0, row_count);
        };
        if (of.correction_bias) {
            p.weight = p.master = take(layout.biases, DType::fp32);
            p.owned_weight = p.owned.of(p.weight);
            continue;
        }
        if (part.frozen) {
            p.weight = part.shares_previous_weight ? parameters[i - 1].weight
                                                   : take(layout.frozen, config.dtype);
            p.owned_weight = p.owned.of(p.weight);
            if (config.dtype == DType::fp32) p.master = p.owned_weight;
            continue;
        }
        if (part.shares_previous_weight) {
            // T writes every row of its gradient, G few rows of its own. So the sum goes to T's
            // gradient, which replicas add up and the optimizer reads.
            Parameter& first = parameters[i - 1];
            p.weight = first.weight;
            p.master = first.master;
            p.gradient = first.gradient;
            p.owned_weight = p.owned.of(p.weight);
            p.owned_gradient = p.owned.of(p.gradient);
            if (training) first.token_gradient = take(layout.gradients, DType::fp32);
        } else {
            const InBucket& place = in_bucket[i];
            p.shards_weight = place.shards_weights();
            p.shards_gradient = training && place.shards_gradients();
            if (p.shards_gradient) {
                p.gradient = Tensor(nowhere(), row_count, cols, DType::fp32);
                p.owned_gradient = take_kept(layout.gradients, place, part, DType::fp32);
            } else if (training) {
                p.gradient = take(layout.gradients, DType::fp32);
                p.owned_gradient = p.owned.of(p.gradient);
            }
            if (p.shards_weight) {
                p.weight = Tensor(nowhere(), row_count, cols, config.dtype);
                p.owned_weight = take_kept(layout.weights, place, part, config.dtype);
            } else {
                p.weight = take(layout.weights, config.dtype);
                p.owned_weight = p.owned.of(p.weight);
            }
            p.master = config.dtype == DType::fp32
                           ? p.owned_weight
                           : take_owned(layout.masters, p.owned, row_count, cols);
            if (training) {
                p.exp_avg = take_owned(layout.moments, p.owned, row_count, cols);
                p.exp_avg_sq = take_owned(layout.moments, p.owned, row_count, cols);
            }
        }
    }
    return parameters;
}

/// Elements made on the host at a time: 4 MiB on their way to the device.
constexpr int64_t kStagedElements = 1 << 20;

}  // namespace

PersistentBytes persistent_bytes(const ModelConfig& config, const std::vector<ParameterRows>& rows,
                                 const std::vector<ParameterBucket>& buckets, bool training) {
    Layout count(config.dtype);
    lay_out(config, rows, buckets, training, count);
    const auto used = [](const Views& views) { return static_cast<uint64_t>(views.used()); };
    return {.weights = used(count.weights) + used(count.biases) + used(count.frozen),
            .gradients = used(count.gradients),
            .optimizer = used(count.masters) + used(count.moments)};
}

ParameterStore::ParameterStore(Device& device, const ModelConfig& config,
                               const std::vector<ParameterRows>& rows,
                               std::vector<ParameterBucket> buckets, const std::string& owner,
                               bool training)
    : buckets_(std::move(buckets)), device_(device), owner_(owner) {
    for (const ParameterRows& part : rows) {
        ids_.push_back(part.id);
        shares_.push_back(part.shares_previous_weight);
        frozen_.push_back(part.frozen);
    }
    Layout count(config.dtype);
    lay_out(config, rows, buckets_, training, count);
    const auto allocate = [&](const Views& views, const char* what) {
        return device.allocate(static_cast<uint64_t>(views.used()), owner + ": " + what);
    };
    biases_ = allocate(count.biases, "correction biases");
    frozen_weights_ = allocate(count.frozen, "frozen weights");
    weights_ = allocate(count.weights, "weights");
    masters_ = allocate(count.masters, "master weights");
    gradients_ = allocate(count.gradients, "gradients");
    moments_ = allocate(count.moments, "optimizer state");
    Layout layout(config.dtype);
    layout.biases.place(biases_.bytes());
    layout.frozen.place(frozen_weights_.bytes());
    layout.weights.place(weights_.bytes());
    layout.masters.place(masters_.bytes());
    layout.gradients.place(gradients_.bytes());
    layout.moments.place(moments_.bytes());
    parameters_ = lay_out(config, rows, buckets_, training, layout);
}

void ParameterStore::initialise(Context& ctx, const ModelConfig& config, uint64_t seed,
                                const InitialiseOptions& options) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    const std::vector<uint64_t> numbers = seed_numbers(logical);
    std::vector<float> staged(static_cast<size_t>(kStagedElements));
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const Parameter& p = parameters_[i];
        const auto id = static_cast<size_t>(ids_[i]);
        const LogicalParameter& of = logical[id];
        if (shares_weight(i)) continue;  // already filled
        if (options.only_adapters && !of.adapter) continue;
        const Tensor values = values_of(i);
        int64_t filled = 0;
        int64_t uploaded = 0;
        const auto upload = [&] {
            upload_values(device_, std::span(staged).first(static_cast<size_t>(filled)), values,
                          uploaded);
            uploaded += std::exchange(filled, 0);
        };
        // Always computed on the host, so that a run starts from the same bits on every device.
        for_each_run(p.shard, of.cols, [&](const ElementRun& run) {
            for (int64_t at = 0; at < run.count;) {
                const int64_t count = std::min(kStagedElements - filled, run.count - at);
                const Tensor part(staged.data() + filled, 1, count, DType::fp32);
                if (of.init_bound > 0) {
                    kernels::host::fill_uniform(ctx, part, seed, numbers[id], run.logical + at,
                                                of.init_bound);
                } else if (of.init_std > 0) {
                    kernels::host::fill_normal(ctx, part, seed, numbers[id], run.logical + at,
                                               of.init_std);
                } else {
                    std::fill_n(staged.begin() + filled, count, of.init_constant);
                }
                at += count;
                filled += count;
                if (filled == kStagedElements) upload();
            }
        });
        if (filled > 0) upload();
        take_values(ctx, i);
    }
}

Tensor ParameterStore::values_of(size_t parameter) {
    const Parameter& p = parameters_[parameter];
    if (frozen_[parameter]) return p.weight;
    if (p.weight.dtype == DType::fp32 && !p.shards_weight) return p.weight;
    if (p.master.size() == p.weight.size()) return p.master;
    if (!p.shards_gradient && !p.shards_weight) return p.gradient;
    const Tensor shape(nullptr, p.weight.rows, p.weight.cols, DType::fp32);
    if (values_.size() == 0) {
        values_ = device_.allocate(static_cast<uint64_t>(shape.bytes()),
                                   owner_ + ": the values of " + p.name);
    }
    return {values_.data(), shape.rows, shape.cols, shape.dtype};
}

void ParameterStore::take_values(Context& ctx, size_t parameter) {
    const Parameter& p = parameters_[parameter];
    const Tensor values = values_of(parameter);
    if (values.data == p.weight.data) return;
    const Tensor owned = p.owned.of(values);
    if (p.shards_weight) {
        if (owned.size() > 0 && owned.data != p.owned_weight.data) {
            ctx.operators().convert(ctx, owned, p.owned_weight);
        }
    } else {
        ctx.operators().convert(ctx, values, p.weight);
    }
    const bool has_master =
        p.master.size() > 0 && p.master.data != values.data && p.master.data != p.owned_weight.data;
    if (has_master) {
        const auto bytes = static_cast<size_t>(p.master.bytes());
        ctx.operators().copy(ctx, {owned.as<const std::byte>(), bytes},
                             {p.master.as<std::byte>(), bytes});
    }
    if (values_.size() == 0) return;
    std::byte last;
    device_.download(values_.data(), std::span(&last, 1));  // waits for the copies out of it
    values_ = {};
}

RankBucket ParameterStore::bucket(size_t index) const {
    const ParameterBucket& bucket = buckets_[index];
    const Parameter& first = parameters_[bucket.parameters.front()];
    const auto bytes = [&](const Tensor& from, bool shared) {
        const int64_t elements = shared ? bucket.own().count : bucket.cut.first.back();
        return Bytes(from.as<std::byte>(), static_cast<size_t>(elements * size_of(from.dtype)));
    };
    return {.gradients = bytes(first.lasting_gradient(), bucket.cut.shards_gradients),
            .weights = bytes(first.lasting_weight(), bucket.cut.shards_weights)};
}

void ParameterStore::place_weights(size_t bucket, Bytes whole) {
    place(bucket, whole, &Parameter::weight);
}

void ParameterStore::place_gradients(size_t bucket, Bytes whole) {
    place(bucket, whole, &Parameter::gradient);
}

void ParameterStore::place(size_t bucket, Bytes whole, Tensor Parameter::*of_parameter) {
    const ParameterBucket& of = buckets_[bucket];
    for (size_t i = 0; i < of.parameters.size(); ++i) {
        Tensor& tensor = parameters_[of.parameters[i]].*of_parameter;
        tensor.data =
            whole.empty() ? nowhere() : whole.data() + of.begins[i] * size_of(tensor.dtype);
    }
}

}  // namespace vocabpipe
