// SPDX-License-Identifier: Apache-2.0
#include "src/model/parameters.hpp"

#include "src/model/blocks/depth_projection.hpp"
#include "src/model/blocks/graph/model_record.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/blocks/model_layer.hpp"
#include "src/model/families/families.hpp"
#include "vocabpipe/parameter_count.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace vocabpipe {

const TensorNames& tensor_names(const ModelConfig& config) {
    return model_family(config.family).tensors;
}

std::string layer_prefix(const ModelConfig& config, int layer) {
    return tensor_names(config).layers + std::to_string(layer) + ".";
}

namespace {

/// Lists the parameters of a ModelConfig::model_forward, those that layers share once.
class OwnLayers {
public:
    OwnLayers(const ModelConfig& config, ParameterList& list) : list_(list) {
        layers_.resize(static_cast<size_t>(config.num_layers));
        Source source(*this);
        static_cast<void>(record_model(config, [&](int layer) -> ParameterSource& {
            layer_ = static_cast<size_t>(layer);
            layers_.resize(std::max(layers_.size(), layer_ + 1));
            return source;
        }));
    }
    [[nodiscard]] std::vector<std::vector<int>> take() { return std::move(layers_); }

private:
    class Source final : public ParameterSource {
    public:
        explicit Source(OwnLayers& to) : to_(to) {}
        Parameter* next(LogicalParameter parameter) override {
            const auto [known, is_new] = to_.ids_.emplace(parameter.name, to_.list_.size());
            to_.layers_[to_.layer_].push_back(known->second);
            return is_new ? to_.list_.next(std::move(parameter)) : nullptr;
        }

    private:
        OwnLayers& to_;
    };

    ParameterList& list_;
    std::map<std::string, int> ids_;
    std::vector<std::vector<int>> layers_;
    size_t layer_ = 0;
};

}  // namespace

ModelParameters model_parameters(const ModelConfig& c) {
    const TensorNames& names = tensor_names(c);
    ParameterList list;
    ModelParameters parameters;
    const auto list_vocabulary_matrix = [&](const std::string& name) {
        list.next({.name = name + ".weight",
                   .rows = c.vocab_size,
                   .cols = c.hidden_size,
                   .init_std = c.init_std,
                   .weight_decay = true});
    };
    auto listed_since = [&, last = 0]() mutable {
        const int first = std::exchange(last, list.size());
        return ParameterRange{.first = first, .end = last};
    };
    // Constructors of blocks list their parameters.
    if (c.embeds_tokens) list_vocabulary_matrix(names.embedding);
    parameters.embedding = c.embeds_tokens ? listed_since().first : -1;
    if (c.model_forward) {
        parameters.own_layers = OwnLayers(c, list).take();
        static_cast<void>(listed_since());
    } else {
        EmbeddedTokens(embedded_tokens_options(c), list);
        parameters.positions = listed_since();
        for (int layer = 0; layer < c.num_layers; ++layer) {
            ModelLayer(c, layer, {}, list);
            parameters.layers.push_back(listed_since());
        }
        Norm(final_norm_options(c), list);
        parameters.final_norm = listed_since();
    }
    const bool output = c.has_output_layer && !c.tied;
    if (output) list_vocabulary_matrix(names.output);
    parameters.output = output               ? listed_since().first
                        : c.has_output_layer ? parameters.embedding
                                             : -1;
    for (int depth = 0; depth < c.mtp_num_layers; ++depth) {
        ModelParameters::Depth& of = parameters.depths.emplace_back();
        DepthProjection(depth_projection_options(c, depth), list);
        of.projection = listed_since();
        ModelLayer(c, c.num_layers + depth, {}, list);
        of.layer = listed_since();
        Norm(depth_norm_options(c, depth), list);
        of.norm = listed_since();
    }
    parameters.all = list.take();
    return parameters;
}

std::vector<uint64_t> seed_numbers(const std::vector<LogicalParameter>& parameters) {
    uint64_t next_adapter = 0, next = 0;
    for (const LogicalParameter& p : parameters) next_adapter += p.adapter ? 0 : 1;
    std::vector<uint64_t> numbers;
    for (const LogicalParameter& p : parameters) {
        numbers.push_back(p.adapter ? next_adapter++ : next++);
    }
    return numbers;
}

int64_t parameter_count(const ModelConfig& config) {
    int64_t sum = 0;
    for (const LogicalParameter& p : logical_parameters(config)) sum += p.rows * p.cols;
    return sum;
}

int64_t active_parameter_count(const ModelConfig& config) {
    int64_t sum = 0;
    for (const LogicalParameter& p : logical_parameters(config)) {
        const int64_t all = p.rows * p.cols;
        sum += p.cut == TensorCut::experts ? all / config.moe.experts * config.moe.top_k : all;
    }
    return sum;
}

}  // namespace vocabpipe
