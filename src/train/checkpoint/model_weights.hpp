// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/support/safetensors/format.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "vocabpipe/model_config.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace vocabpipe {

/// The tensors of a folder by the model's names for them, in whichever way the files name them:
/// * without the body's prefix, as the original GPT-2;
/// * a tied weight only as the output layer's, as safetensors' save_model() does;
/// * all experts of a layer in one tensor, and GPT-NeoX's output as lm_head, as transformers 5 does
///   with save_original_format false.
/// Any tensor that is missing, not part of the model (known buffers excepted), not listed in the
/// index, or of another shape or type is an InputFileError. If a tied weight is stored under both
/// names, compare_tied() compares them.
class ModelWeights {
public:
    /// `folder` must outlive this object, and so must `adapters`: PEFT's file of the model's
    /// adapters; null: those that the model has are in the folder.
    ModelWeights(const TensorFolder& folder, const ModelConfig& config,
                 const SafetensorsFile* adapters = nullptr);
    ModelWeights(const ModelWeights&) = delete;  // by_role_ refers to slices_
    ModelWeights& operator=(const ModelWeights&) = delete;

    /// The tensor of a name in model_file_tensors().
    [[nodiscard]] const FoundTensor& at(const std::string& name) const { return found_.at(name); }
    [[nodiscard]] bool has(const std::string& name) const { return found_.contains(name); }

    /// A tied weight that the files have under both names.
    struct TiedPair {
        FoundTensor embedding, output;
    };
    [[nodiscard]] const std::optional<TiedPair>& stored_twice() const { return stored_twice_; }
    /// InputFileError with both names if a value differs in the part `share` of `shares` of the
    /// pair. `poll` is called between pieces and may throw; it may be empty.
    void compare_tied(uint64_t share, uint64_t shares, const std::function<void()>& poll) const;

private:
    void add_newer_output();
    void add_stacked_experts(int layer);
    void add_tied_output();
    [[nodiscard]] const FoundTensor* find(const std::string& name) const;
    void refuse_other_adapters() const;
    [[noreturn]] void refuse_missing(const std::string& name) const;
    void refuse_others(const std::set<const StoredTensor*>& used) const;

    const TensorFolder& folder_;
    ModelConfig config_;
    std::map<std::string, FoundTensor> adapters_;  ///< of the file that has them alone
    std::deque<StoredTensor> slices_;  ///< one expert's part of tensors that have all of them
    /// Tensors that files name differently, by their names in the model.
    std::map<std::string, FoundTensor> by_role_;
    /// Tensors of files that the model uses, but not under their own names.
    std::set<const StoredTensor*> used_otherwise_;
    std::optional<TiedPair> stored_twice_;
    std::map<std::string, FoundTensor> found_;
};

/// InputFileError "PATH: tensor NAME: has shape ..., but config.json requires ..." and the like.
/// `any_type`: BF16 and F16 as well as F32.
void check_tensor(const FoundTensor& found, const std::vector<int64_t>& shape, bool any_type);

}  // namespace vocabpipe
