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

/// The tensors of a folder by the names that they have in a model of its own, whichever of the ways
/// to write it the files have chosen:
/// * without the name of the body, as GPT-2's original;
/// * a tied weight by the name of the output layer alone, as safetensors' save_model() does;
/// * all experts of a layer in one tensor, and GPT-NeoX's output as lm_head, as transformers 5 does
///   with save_original_format false.
/// No tensor of the files is passed over but known buffers: what is not part of the model, and what
/// the index does not list, is an InputFileError, as is a tensor that is missing or has another
/// shape or type. Of a tied weight under both names, stored_twice() are to be compared.
class ModelWeights {
public:
    /// `folder` must outlive this object.
    ModelWeights(const TensorFolder& folder, const ModelConfig& config);
    ModelWeights(const ModelWeights&) = delete;  // by_role_ refers to slices_
    ModelWeights& operator=(const ModelWeights&) = delete;

    /// The tensor of a name in model_file_tensors().
    [[nodiscard]] const FoundTensor& at(const std::string& name) const { return found_.at(name); }

    /// A tied weight that the files have under both names.
    struct TiedPair {
        FoundTensor embedding, output;
    };
    [[nodiscard]] const std::optional<TiedPair>& stored_twice() const { return stored_twice_; }
    /// InputFileError with both names where the part `share` of `shares` of them differs in a
    /// value. `poll`: called between pieces; may throw. Empty: nothing.
    void compare_tied(uint64_t share, uint64_t shares, const std::function<void()>& poll) const;

private:
    void add_newer_output();
    void add_stacked_experts(int layer);
    void add_tied_output();
    [[nodiscard]] const FoundTensor* find(const std::string& name) const;
    [[noreturn]] void refuse_missing(const std::string& name) const;
    void refuse_others(const std::set<const StoredTensor*>& used) const;

    const TensorFolder& folder_;
    ModelConfig config_;
    std::deque<StoredTensor> slices_;  ///< one expert's part of tensors that have all of them
    /// What files name otherwise, by its name in the model.
    std::map<std::string, FoundTensor> by_role_;
    /// Tensors of files that no name in the model has by itself.
    std::set<const StoredTensor*> used_otherwise_;
    std::optional<TiedPair> stored_twice_;
    std::map<std::string, FoundTensor> found_;
};

/// InputFileError "PATH: tensor NAME: has shape ..., but config.json requires ..." and the like.
/// `any_type`: BF16 and F16 as well as F32.
void check_tensor(const FoundTensor& found, const std::vector<int64_t>& shape, bool any_type);

}  // namespace vocabpipe
