// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameters.hpp"

#include "src/model/families/families.hpp"

#include <cmath>
#include <utility>

namespace vocabpipe {

namespace {

/// Writes down the parameters one after the other.
class List {
public:
    List(const ModelConfig& config, const TensorNames& names) : c_(config), names_(names) {}

    int matrix(const std::string& name, int64_t rows, int64_t cols, float std) {
        all.push_back({.name = name,
                       .rows = rows,
                       .cols = cols,
                       .init_std = std,
                       .init_constant = 0,
                       .weight_decay = true,
                       .transposed_in_files = false,
                       .parts = {}});
        return static_cast<int>(all.size()) - 1;
    }
    int vector(const std::string& name, int64_t size, float value) {
        all.push_back({.name = name,
                       .rows = 1,
                       .cols = size,
                       .init_std = 0,
                       .init_constant = value,
                       .weight_decay = false,
                       .transposed_in_files = false,
                       .parts = {}});
        return static_cast<int>(all.size()) - 1;
    }
    int norm_weight(const std::string& name, int64_t size) {
        return vector(name + ".weight", size, 1 - c_.norm_weight_offset);
    }
    WeightAndBias norm(const std::string& name) {
        const int weight = norm_weight(name, c_.hidden_size);
        if (c_.normalization == Normalization::rms_norm) return {.weight = weight};
        return {.weight = weight, .bias = vector(name + ".bias", c_.hidden_size, 0)};
    }
    WeightAndBias linear(const std::string& name, int64_t out, int64_t in, float std, bool bias,
                         const std::vector<FilePart>& parts = {}) {
        WeightAndBias ids{.weight = matrix(name + ".weight", out, in, std)};
        all.back().transposed_in_files = names_.transposed;
        split(parts, ".weight");
        if (!bias) return ids;
        ids.bias = vector(name + ".bias", out, 0);
        split(parts, ".bias");
        return ids;
    }

    std::vector<LogicalParameter> all;

private:
    void split(const std::vector<FilePart>& parts, const char* suffix) {
        for (const FilePart& part : parts) {
            all.back().parts.push_back({part.name + suffix, part.count});
        }
    }
    const ModelConfig& c_;
    const TensorNames& names_;
};

}  // namespace

ModelParameters model_parameters(const ModelConfig& c) {
    const TensorNames& names = model_family(c.family).tensors;
    const int64_t h = c.hidden_size;
    const int64_t f = c.ffn_hidden_size;
    const int64_t q = c.query_columns();
    const int64_t kv = c.kv_heads() * c.head_size();
    // GPT-2 scales the projections into the residual stream by 1/sqrt(2 L).
    const float into_residual = c.init_std / std::sqrt(2.0F * static_cast<float>(c.num_layers));

    List list(c, names);
    ModelParameters parameters;
    parameters.embedding = list.matrix(names.embedding + ".weight", c.vocab_size, h, c.init_std);
    if (c.learned_positions) {
        parameters.positions =
            list.matrix(names.positions + ".weight", c.max_position_embeddings, h, c.init_std);
    }
    for (int i = 0; i < c.num_layers; ++i) {
        const std::string at = names.layers + std::to_string(i) + ".";
        const auto parts = [&](const std::vector<std::string>& of, std::vector<int64_t> counts) {
            std::vector<FilePart> parts;
            for (size_t k = 0; k < of.size(); ++k) parts.push_back({at + of[k], counts[k]});
            return parts;
        };
        LayerParameters layer;
        layer.attention_norm = list.norm(at + names.attention_norm);
        layer.qkv = list.linear(at + names.qkv, q + 2 * kv, h, c.init_std, c.qkv_bias,
                                parts(names.qkv_parts, {q, kv, kv}));
        if (c.qk_norm) {
            layer.q_norm = list.norm_weight(at + names.q_norm, c.head_size());
            layer.k_norm = list.norm_weight(at + names.k_norm, c.head_size());
        }
        layer.proj = list.linear(at + names.proj, h, q, into_residual, c.attention_output_bias);
        if (c.post_norms) layer.post_attention_norm = list.norm(at + names.post_attention_norm);
        layer.mlp_norm = list.norm(at + names.mlp_norm);
        layer.fc = list.linear(at + names.fc, c.mlp_columns(), h, c.init_std, c.mlp_bias,
                               parts(names.fc_parts, {f, f}));
        layer.fc_proj = list.linear(at + names.fc_proj, h, f, into_residual, c.mlp_bias);
        if (c.post_norms) layer.post_mlp_norm = list.norm(at + names.post_mlp_norm);
        parameters.layers.push_back(layer);
    }
    parameters.final_norm = list.norm(names.final_norm);
    parameters.output = c.tied ? parameters.embedding
                               : list.matrix(names.output + ".weight", c.vocab_size, h, c.init_std);
    parameters.all = std::move(list.all);
    return parameters;
}

}  // namespace vocabpipe
