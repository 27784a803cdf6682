// SPDX-License-Identifier: Apache-2.0
#include "src/model/rotary_tables.hpp"

#include "src/model/blocks/layer_options.hpp"

#include <utility>

namespace vocabpipe {

namespace {

/// The kinds of rotary positions among the layers of a model, each once.
std::vector<Rope> kinds_of_rope(const ModelConfig& config) {
    std::vector<Rope> kinds;
    for (int layer = 0; layer < config.num_layers; ++layer) {
        const std::optional<Rope> rope = rope_of_layer(config, layer);
        if (rope && std::ranges::find(kinds, *rope) == kinds.end()) kinds.push_back(*rope);
    }
    return kinds;
}

int64_t table_bytes(const ModelConfig& config) {
    return config.seq_length * config.rotary_size() * size_of(DType::fp32);
}

}  // namespace

RotaryTables::RotaryTables(Device& device, const ModelConfig& config, const std::string& owner) {
    for (const Rope& rope : kinds_of_rope(config)) {
        const std::vector<float> table =
            rotary_table(rope, config.rotary_dimension(), config.seq_length);
        DeviceMemory memory = device.allocate(static_cast<uint64_t>(table_bytes(config)),
                                              owner + ": rotary positions");
        device.upload(std::as_bytes(std::span(table)), memory.data());
        const ConstTensor values(memory.data(), config.seq_length, config.rotary_size(),
                                 DType::fp32);
        tables_.push_back({.rope = rope, .memory = std::move(memory), .values = values});
    }
}

int64_t RotaryTables::bytes(const ModelConfig& config) {
    return static_cast<int64_t>(kinds_of_rope(config).size()) * table_bytes(config);
}

}  // namespace vocabpipe
