// SPDX-License-Identifier: Apache-2.0
#include "src/model/key_value_cache.hpp"

#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

/// The heads of the layers are those of the model.
void check_layers(const ModelConfig& config) {
    if (!config.has_own_layers()) return;
    throw UsageError(
        "generation: the model has layers of your own, whose keys and "
        "values have no cache; use the library's layers");
}

int64_t columns(const ModelConfig& config, int tensor) {
    return config.key_value_columns() / tensor;
}

}  // namespace

KeyValueCache::KeyValueCache(Device& device, const ModelConfig& config,
                             const std::vector<int>& layers, int tensor, const std::string& owner)
    : positions_(config.seq_length),
      memory_(device.allocate(static_cast<uint64_t>(bytes(config, std::ssize(layers), tensor)),
                              owner + ": keys and values")),
      by_layer_(static_cast<size_t>(config.num_layers + config.mtp_num_layers)) {
    const int64_t of_layer = bytes(config, 1, tensor);
    std::byte* next = memory_.data();
    for (const int layer : layers) {
        by_layer_[static_cast<size_t>(layer)] =
            Tensor(next, positions_, columns(config, tensor), config.dtype);
        next += of_layer;
    }
}

int64_t KeyValueCache::bytes(const ModelConfig& config, int64_t layers, int tensor) {
    check_layers(config);
    constexpr int64_t kAlignment = 256;  // kernels read vectors
    const int64_t of_layer = config.seq_length * columns(config, tensor) * size_of(config.dtype);
    return layers * ((of_layer + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace vocabpipe
