// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/router_options.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Layers with experts, by their numbers in the model; those of depths of multi-token prediction
/// come after the model's own.
[[nodiscard]] inline std::vector<int> routed_layers(const ModelConfig& config) {
    std::vector<int> layers;
    for (int layer = 0; layer < config.num_layers + config.mtp_num_layers; ++layer) {
        if (config.moe.in_layer(layer)) layers.push_back(layer);
    }
    return layers;
}

/// Doubles that Operators::sum_routing() adds up per layer with experts.
[[nodiscard]] inline int64_t router_sums_of_layer(const ModelConfig& config) {
    return config.moe.experts > 0 ? kernels::kExpertLoads + config.moe.experts : 0;
}

/// Statistics of the routers of a rank's layers in a step, in device memory that begins as 0.
class RouterSums {
public:
    /// `layers`: the rank's layers with experts, by their numbers in the model, ascending.
    RouterSums(Device& device, const ModelConfig& config, std::vector<int> layers,
               const std::string& owner)
        : each_(router_sums_of_layer(config)),
          layers_(std::move(layers)),
          memory_(device.allocate(bytes(config, std::ssize(layers_)), owner + ": router sums")) {
        const std::vector<std::byte> zeros(memory_.size());
        if (!zeros.empty()) device.upload(zeros, memory_.data());
    }

    [[nodiscard]] static uint64_t bytes(const ModelConfig& config, int64_t layers) {
        return static_cast<uint64_t>(layers * router_sums_of_layer(config)) * sizeof(double);
    }
    /// The sums of a layer of the model; empty if it is not on this rank or has no experts.
    [[nodiscard]] std::span<double> of(int layer) const {
        for (size_t i = 0; i < layers_.size(); ++i) {
            if (layers_[i] != layer) continue;
            const auto each = static_cast<size_t>(each_);
            return {reinterpret_cast<double*>(memory_.data()) + i * each, each};
        }
        return {};
    }

private:
    int64_t each_;
    std::vector<int> layers_;
    DeviceMemory memory_;
};

}  // namespace vocabpipe
