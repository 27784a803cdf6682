// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/weight_files.hpp"

#include "src/train/checkpoint/tensor_folder.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

namespace vocabpipe {

namespace {

uint64_t data_bytes(const StoredTensor& tensor) {
    uint64_t bytes = item_size(tensor.type);
    for (const int64_t size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    return bytes;
}

std::string shard_name(size_t shard, size_t shards) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", shard + 1, shards);
    return name;
}

}  // namespace

WeightFiles plan_weight_files(const std::vector<StoredTensor>& tensors, uint64_t max_bytes) {
    std::vector<std::vector<StoredTensor>> shards(1);
    uint64_t total = 0;
    uint64_t in_shard = 0;
    for (const StoredTensor& tensor : tensors) {
        const uint64_t bytes = data_bytes(tensor);
        if (in_shard > 0 && in_shard + bytes > max_bytes) {
            shards.emplace_back();
            in_shard = 0;
        }
        shards.back().push_back(tensor);
        in_shard += bytes;
        total += bytes;
    }
    WeightFiles files;
    nlohmann::ordered_json index;
    index["metadata"]["total_size"] = total;
    for (size_t i = 0; i < shards.size(); ++i) {
        files.names.push_back(shards.size() == 1 ? std::string(kModelFile)
                                                 : shard_name(i, shards.size()));
        for (const StoredTensor& tensor : shards[i]) {
            index["weight_map"][tensor.name] = files.names.back();
        }
        files.plans.emplace_back(std::move(shards[i]),
                                 std::map<std::string, std::string>{{"format", "pt"}});
    }
    if (files.names.size() > 1) files.index = index.dump(2) + "\n";
    return files;
}

bool is_shard_name(std::string_view name) {
    constexpr std::string_view kPattern = "model-00000-of-00000.safetensors";
    return name.size() == kPattern.size() &&
           std::equal(name.begin(), name.end(), kPattern.begin(), [](char c, char pattern) {
               return pattern == '0' ? c >= '0' && c <= '9' : c == pattern;
           });
}

}  // namespace vocabpipe
