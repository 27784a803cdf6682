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

int64_t table_bytes(const ModelConfig& config, int64_t tokens) {
    return tokens * config.rotary_size() * size_of(DType::fp32);
}

}  // namespace

RotaryTables::RotaryTables(Device& device, const ModelConfig& config, const ContextCut& cut,
                           const std::string& owner, std::span<const int64_t> shorter_lengths)
    : cut_(cut.ranks() > 1) {
    add(device, config, cut, owner);
    if (!cut_) return;
    for (const int64_t length : shorter_lengths) {
        add(device, config, ContextCut(length, cut.rank(), cut.ranks()), owner);
    }
}

void RotaryTables::add(Device& device, const ModelConfig& config, const ContextCut& cut,
                       const std::string& owner) {
    const auto row_bytes = static_cast<size_t>(config.rotary_size() * size_of(DType::fp32));
    for (const Rope& rope : kinds_of_rope(config)) {
        const std::vector<float> table =
            rotary_table(rope, config.rotary_dimension(), cut.seq_length());
        DeviceMemory memory =
            device.allocate(static_cast<uint64_t>(table_bytes(config, cut.own_length())),
                            owner + ": rotary positions");
        std::byte* to = memory.data();
        for (int n = 0; n < cut.segments(); ++n) {
            const RowRange rows = cut.segment(n);
            const auto segment = std::as_bytes(std::span(table))
                                     .subspan(static_cast<size_t>(rows.first) * row_bytes,
                                              static_cast<size_t>(rows.size()) * row_bytes);
            device.upload(segment, to);
            to += segment.size();
        }
        const ConstTensor values(memory.data(), cut.own_length(), config.rotary_size(),
                                 DType::fp32);
        tables_.push_back({.rope = rope, .memory = std::move(memory), .values = values});
    }
}

int64_t RotaryTables::bytes(const ModelConfig& config, int context,
                            std::span<const int64_t> shorter_lengths) {
    int64_t tokens = config.seq_length / context;
    if (context > 1) {
        for (const int64_t length : shorter_lengths) tokens += length / context;
    }
    return static_cast<int64_t>(kinds_of_rope(config).size()) * table_bytes(config, tokens);
}

}  // namespace vocabpipe
