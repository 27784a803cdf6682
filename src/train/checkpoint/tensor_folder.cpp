// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/tensor_folder.hpp"

#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <filesystem>

namespace vocabpipe {

std::map<std::string, std::string> parse_shard_index(std::string_view text,
                                                     const std::string& path) {
    std::map<std::string, std::string> shard_of;
    for (const auto& [name, value] : StrictJson::parse(text, path).at("weight_map").members()) {
        const std::string shard = value.text();
        const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                           shard.find('/') == std::string::npos && readable(shard) == shard;
        if (!plain) value.fail("must name a file in the same folder");
        shard_of[name] = shard;
    }
    return shard_of;
}

TensorFolder::TensorFolder(const std::string& folder)
    : path_(folder + "/" + std::string(kModelFile)) {
    const std::string index = folder + "/" + std::string(kModelIndex);
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored) || !std::filesystem::exists(index, ignored)) {
        files_.push_back(std::make_unique<SafetensorsFile>(path_));
        for (const StoredTensor& t : files_.back()->header().tensors) {
            tensors_[t.name] = {files_.back().get(), &t};
        }
        return;
    }
    path_ = index;
    std::map<std::string, const SafetensorsFile*> opened;
    for (const auto& [name, shard] : parse_shard_index(InputFile(index).text(), index)) {
        const SafetensorsFile*& file = opened[shard];
        if (file == nullptr) {
            if (!std::filesystem::exists(folder + "/" + shard, ignored)) {
                throw InputFileError(index + ": weight_map." + readable(name) + ": the shard " +
                                     shard + " is missing; download it into the same folder");
            }
            files_.push_back(std::make_unique<SafetensorsFile>(folder + "/" + shard));
            file = files_.back().get();
        }
        const StoredTensor* tensor = file->find(name);
        if (tensor == nullptr) {
            throw InputFileError(file->path() + ": tensor " + readable(name) +
                                 ": is missing, but " + std::string(kModelIndex) +
                                 " lists it; download shards and index of the same version");
        }
        tensors_[name] = {file, tensor};
    }
    for (const auto& file : files_) {
        for (const StoredTensor& t : file->header().tensors) {
            const auto listed = tensors_.find(t.name);
            if (listed != tensors_.end() && listed->second.file == file.get()) continue;
            unlisted_.push_back({file.get(), &t});
        }
    }
}

}  // namespace vocabpipe
