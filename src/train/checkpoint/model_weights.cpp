// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/model_weights.hpp"

#include "src/model/blocks/adapter.hpp"
#include "src/model/families/families.hpp"
#include "src/model/parameters.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/same_values.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& tensor,
                         const std::string& what) {
    throw InputFileError(path + ": tensor " + readable(tensor) + ": " + what);
}

std::string weight_name(const std::string& tensor) {
    return tensor + ".weight";
}

/// A prefix that a program puts before the names of all tensors, and how to save without it.
struct Wrapper {
    std::string_view prefix, adds, remedy;
};
constexpr std::array kWrappers{
    Wrapper{"_orig_mod.", "torch.compile adds", "save model._orig_mod instead of model"},
    Wrapper{"_fsdp_wrapped_module.", "FSDP adds", "save a full state dict"},
    Wrapper{"base_model.model.", "PEFT adds", "merge the adapter into the model and save that"},
    Wrapper{"module.", "DataParallel and DistributedDataParallel add",
            "save model.module instead of model"}};

/// The prefix that all names have, `name` included; empty: none.
std::string common_prefix(const TensorFolder& folder, const std::string& name) {
    const auto& tensors = folder.tensors();
    for (const auto& [candidate, found] : tensors) {
        if (candidate.size() <= name.size() || !candidate.ends_with(name)) continue;
        const std::string prefix = candidate.substr(0, candidate.size() - name.size());
        const bool all = std::ranges::all_of(
            tensors, [&](const auto& one) { return one.first.starts_with(prefix); });
        if (all) return prefix;
    }
    return {};
}

[[noreturn]] void refuse_prefix(const TensorFolder& folder, const std::string& prefix) {
    std::string what = "; remove it from the names";
    for (const Wrapper& wrapper : kWrappers) {
        if (prefix.find(wrapper.prefix) == std::string::npos) continue;
        what = ", which " + std::string(wrapper.adds) + "; " + std::string(wrapper.remedy) +
               ", or remove it from the names";
        break;
    }
    throw InputFileError(folder.path() + ": the names of all tensors begin with \"" +
                         readable(prefix) + "\"" + what);
}

}  // namespace

void check_tensor(const FoundTensor& of, const std::vector<int64_t>& shape, bool any_type) {
    const std::string& path = of.file->path();
    const StoredTensor& found = *of.tensor;
    if (found.shape != shape) {
        refuse(path, found.name,
               "has shape " + shape_text(found.shape) + ", but " + std::string(kConfigFile) +
                   " requires " + shape_text(shape) +
                   "; both must be from the same model; download or save them again");
    }
    const bool half = found.type == StoredType::BF16 || found.type == StoredType::F16;
    if (found.type != StoredType::F32 && !(any_type && half)) {
        refuse(path, found.name,
               "is " + std::string(name_of(found.type)) + "; expected " +
                   (any_type ? "F32, BF16 or F16; convert it" : "F32; save it again"));
    }
}

ModelWeights::ModelWeights(const TensorFolder& folder, const ModelConfig& config,
                           const SafetensorsFile* adapters)
    : folder_(folder), config_(config) {
    if (adapters != nullptr) {
        for (const StoredTensor& t : adapters->header().tensors) adapters_[t.name] = {adapters, &t};
    }
    add_newer_output();
    for (int layer = 0; layer < config.num_layers + config.mtp_num_layers; ++layer) {
        add_stacked_experts(layer);
    }
    if (config.tied) add_tied_output();
    std::set<const StoredTensor*> used = used_otherwise_;
    for (const StoredTensor& t : model_file_tensors(config)) {
        const FoundTensor* const found = find(t.name);
        if (found == nullptr) refuse_missing(t.name);
        check_tensor(*found, t.shape, true);
        used.insert(found->tensor);
        found_.emplace(t.name, *found);
    }
    refuse_others(used);
    refuse_other_adapters();
}

/// By its own name, with or without the body's prefix.
const FoundTensor* ModelWeights::find(const std::string& name) const {
    const auto& tensors = folder_.tensors();
    auto found = tensors.find(name);
    const std::string_view body = body_prefix(config_);
    if (found == tensors.end() && name.starts_with(body)) {
        found = tensors.find(name.substr(body.size()));
    }
    if (found != tensors.end()) return &found->second;
    const auto adapter = adapters_.find(name);
    if (adapter != adapters_.end()) return &adapter->second;
    const auto otherwise = by_role_.find(name);
    return otherwise == by_role_.end() ? nullptr : &otherwise->second;
}

void ModelWeights::add_newer_output() {
    const TensorNames& names = model_family(config_.family).tensors;
    const std::string output = weight_name(names.output);
    if (names.newer_output.empty() || find(output) != nullptr) return;
    const FoundTensor* const newer = find(weight_name(names.newer_output));
    if (newer != nullptr) by_role_[output] = *newer;
}

/// Cuts "gate_up_proj" and "down_proj" of a layer into one tensor per expert, as other files have
/// them.
void ModelWeights::add_stacked_experts(int layer) {
    const TensorNames& names = model_family(config_.family).tensors;
    if (names.stacked_experts.empty() || !config_.moe.in_layer(layer)) return;
    const std::string of_layer = layer_prefix(config_, layer);
    const int64_t experts = config_.moe.experts;
    const int64_t hidden = config_.hidden_size;
    const int64_t ffn = config_.expert_ffn_hidden_size();
    const auto cut = [&](const char* stacked, const std::vector<std::string>& parts, int64_t rows,
                         int64_t columns) {
        const FoundTensor* const whole = find(of_layer + names.stacked_experts + stacked);
        if (whole == nullptr) return;
        check_tensor(*whole, {experts, std::ssize(parts) * rows, columns}, true);
        used_otherwise_.insert(whole->tensor);
        const uint64_t bytes =
            static_cast<uint64_t>(rows * columns) * item_size(whole->tensor->type);
        uint64_t begin = whole->tensor->begin;
        for (int64_t expert = 0; expert < experts; ++expert) {
            for (const std::string& part : parts) {
                const std::string name =
                    weight_name(of_layer + names.experts + std::to_string(expert) + "." + part);
                if (find(name) != nullptr) {
                    refuse(whole->file->path(), whole->tensor->name,
                           "has all experts of the layer, but " + name +
                               " is there, too; save the model again with one of them");
                }
                slices_.push_back({.name = whole->tensor->name,
                                   .type = whole->tensor->type,
                                   .shape = {rows, columns},
                                   .begin = begin,
                                   .end = begin + bytes});
                by_role_[name] = {whole->file, &slices_.back()};
                begin += bytes;
            }
        }
    };
    cut("gate_up_proj", {names.expert_gate, names.expert_up}, ffn, hidden);
    cut("down_proj", {names.expert_down}, hidden, ffn);
    if (names.stacked_router.empty()) return;
    const FoundTensor* const router = find(weight_name(of_layer + names.stacked_router));
    if (router != nullptr) by_role_[weight_name(of_layer + names.router)] = *router;
}

/// Finds a tied weight under either name, or both.
void ModelWeights::add_tied_output() {
    const TensorNames& names = model_family(config_.family).tensors;
    const std::string embedding_name = weight_name(names.embedding);
    const FoundTensor* const embedding = find(embedding_name);
    const FoundTensor* const output = find(weight_name(names.output));
    if (output == nullptr) return;
    if (embedding == nullptr) {
        by_role_[embedding_name] = *output;
        return;
    }
    check_tensor(*output, {config_.vocab_size, config_.hidden_size}, true);
    used_otherwise_.insert(output->tensor);
    stored_twice_ = {.embedding = *embedding, .output = *output};
}

void ModelWeights::compare_tied(uint64_t share, uint64_t shares,
                                const std::function<void()>& poll) const {
    if (!stored_twice_) return;
    const FoundTensor& embedding = stored_twice_->embedding;
    const FoundTensor& output = stored_twice_->output;
    const auto rows = static_cast<uint64_t>(config_.vocab_size);
    const auto first = static_cast<int64_t>(rows * share / shares) * config_.hidden_size;
    const auto last = static_cast<int64_t>(rows * (share + 1) / shares) * config_.hidden_size;
    const std::optional<int64_t> at = first_difference(embedding, output, first, last, poll);
    if (!at) return;
    refuse(output.file->path(), output.tensor->name,
           "differs from " + readable(embedding.tensor->name) + " in row " +
               std::to_string(*at / config_.hidden_size) + ", but " + std::string(kConfigFile) +
               " says that they are one (tie_word_embeddings); set tie_word_embeddings to false "
               "there to load both");
}

void ModelWeights::refuse_other_adapters() const {
    for (const auto& [name, found] : adapters_) {
        if (found_.contains(name)) continue;
        refuse(found.file->path(), name,
               "belongs to no adapter of this model that the file's configuration describes; use "
               "the model that the adapters were trained with");
    }
}

void ModelWeights::refuse_missing(const std::string& name) const {
    if (!adapters_.empty() && name.starts_with(kAdapterPrefix)) {
        refuse(adapters_.begin()->second.file->path(), name,
               "is missing; use the model that the adapters were trained with");
    }
    const std::string_view body = body_prefix(config_);
    std::vector<std::string> wanted{name};
    if (name.starts_with(body)) wanted.push_back(name.substr(body.size()));
    if (config_.tied) wanted.push_back(weight_name(model_family(config_.family).tensors.output));
    for (const std::string& one : wanted) {
        const std::string prefix = common_prefix(folder_, one);
        if (!prefix.empty()) refuse_prefix(folder_, prefix);
    }
    refuse(folder_.path(), name,
           "is missing; " + std::string(kConfigFile) +
               " and the weights must be from the same model; download or save them again");
}

void ModelWeights::refuse_others(const std::set<const StoredTensor*>& used) const {
    for (const auto& [name, found] : folder_.tensors()) {
        if (used.contains(found.tensor) || is_no_weight_of(name, config_)) continue;
        refuse(found.file->path(), name,
               "is not part of the model that " + std::string(kConfigFile) +
                   " describes; download or save both again");
    }
    for (const FoundTensor& found : folder_.unlisted()) {
        if (is_no_weight_of(found.tensor->name, config_)) continue;
        refuse(found.file->path(), found.tensor->name,
               "is in this file, but " + std::string(kModelIndex) +
                   " does not say so; download shards and index of the same version");
    }
}

}  // namespace vocabpipe
