// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/reader.hpp"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kModelIndex = "model.safetensors.index.json";

/// A tensor and the file that has it.
struct FoundTensor {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
};

/// The file of every tensor, from the text of model.safetensors.index.json. File names are relative
/// to its folder.
[[nodiscard]] std::map<std::string, std::string> parse_shard_index(std::string_view text,
                                                                   const std::string& path);

/// The weights of a Hugging Face folder: model.safetensors, or the shards of its index.
/// InputFileError if a shard is missing or a tensor is not where the index says.
class TensorFolder {
public:
    explicit TensorFolder(const std::string& folder);

    [[nodiscard]] const std::map<std::string, FoundTensor>& tensors() const { return tensors_; }
    [[nodiscard]] const std::vector<std::unique_ptr<SafetensorsFile>>& files() const {
        return files_;
    }
    /// Tensors in shards that the index does not list there.
    [[nodiscard]] const std::vector<FoundTensor>& unlisted() const { return unlisted_; }
    /// model.safetensors or the index: names the weights in messages.
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::map<std::string, FoundTensor> tensors_;
    std::vector<FoundTensor> unlisted_;
};

}  // namespace vocabpipe
