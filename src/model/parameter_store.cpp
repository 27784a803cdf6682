// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameter_store.hpp"

#include "kernels/host/random.hpp"
#include "kernels/operators.hpp"
#include "src/model/parameters.hpp"
#include "src/model/views.hpp"

#include <algorithm>
#include <span>

namespace vocabpipe {

namespace {

struct Layout {
    Views weights, masters, gradients, moments;
};

/// Cuts the four allocations into tensors; with null memory it only counts.
std::vector<Parameter> lay_out(const ModelConfig& config, const std::vector<ParameterRows>& rows,
                               bool training, Layout& layout) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    std::vector<Parameter> parameters;
    for (const ParameterRows& part : rows) {
        const LogicalParameter& of = logical[static_cast<size_t>(part.id)];
        Parameter p;
        p.name = of.name;
        p.first_row = part.first_row;
        p.logical_rows = of.rows;
        p.weight_decay = of.weight_decay;
        p.counted_elsewhere = part.counted_elsewhere;
        if (training) p.gradient = layout.gradients.take(part.rows, of.cols, DType::fp32);
        if (part.shares_previous_weight) {
            const auto same = std::find_if(parameters.begin(), parameters.end(),
                                           [&](const Parameter& q) { return q.name == p.name; });
            p.weight = same->weight;
            p.master = same->master;
        } else {
            p.weight = layout.weights.take(part.rows, of.cols, config.dtype);
            p.master = config.dtype == DType::fp32
                           ? p.weight
                           : layout.masters.take(part.rows, of.cols, DType::fp32);
            if (training) {
                p.exp_avg = layout.moments.take(part.rows, of.cols, DType::fp32);
                p.exp_avg_sq = layout.moments.take(part.rows, of.cols, DType::fp32);
            }
        }
        parameters.push_back(std::move(p));
    }
    return parameters;
}

/// Elements made on the host at a time: 4 MiB on their way to the device.
constexpr int64_t kStagedElements = 1 << 20;

}  // namespace

PersistentBytes persistent_bytes(const ModelConfig& config, const std::vector<ParameterRows>& rows,
                                 bool training) {
    Layout count;
    lay_out(config, rows, training, count);
    const auto used = [](const Views& views) { return static_cast<uint64_t>(views.used()); };
    return {.weights = used(count.weights),
            .gradients = used(count.gradients),
            .optimizer = used(count.masters) + used(count.moments)};
}

ParameterStore::ParameterStore(Device& device, const ModelConfig& config,
                               const std::vector<ParameterRows>& rows, const std::string& owner,
                               bool training)
    : device_(device) {
    for (const ParameterRows& part : rows) {
        ids_.push_back(part.id);
        shares_.push_back(part.shares_previous_weight);
    }
    Layout count;
    lay_out(config, rows, training, count);
    const auto allocate = [&](const Views& views, const char* what) {
        return device.allocate(static_cast<uint64_t>(views.used()), owner + ": " + what);
    };
    weights_ = allocate(count.weights, "weights");
    masters_ = allocate(count.masters, "master weights");
    gradients_ = allocate(count.gradients, "gradients");
    moments_ = allocate(count.moments, "optimizer state");
    Layout layout{Views(weights_.bytes()), Views(masters_.bytes()), Views(gradients_.bytes()),
                  Views(moments_.bytes())};
    parameters_ = lay_out(config, rows, training, layout);
}

void ParameterStore::initialise(Context& ctx, const ModelConfig& config, uint64_t seed) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    std::vector<float> staged(static_cast<size_t>(kStagedElements));
    for (size_t i = 0; i < parameters_.size(); ++i) {
        Parameter& p = parameters_[i];
        const LogicalParameter& of = logical[static_cast<size_t>(ids_[i])];
        if (shares_weight(i)) continue;  // already filled
        // Always made on the host: then a run starts from the same bits on every device.
        for (int64_t at = 0; at < p.master.size(); at += kStagedElements) {
            const int64_t count = std::min(kStagedElements, p.master.size() - at);
            const Tensor part(staged.data(), 1, count, DType::fp32);
            if (of.init_std > 0) {
                kernels::host::fill_normal(ctx, part, seed, static_cast<uint64_t>(ids_[i]),
                                           p.first_row * p.master.cols + at, of.init_std);
            } else {
                std::fill_n(staged.begin(), count, of.init_constant);
            }
            device_.upload(std::as_bytes(std::span(staged).first(static_cast<size_t>(count))),
                           reinterpret_cast<std::byte*>(p.master.as<float>() + at));
        }
        if (p.weight.data != p.master.data) ctx.operators().convert(ctx, p.master, p.weight);
    }
}

}  // namespace vocabpipe
