// SPDX-License-Identifier: Apache-2.0
#include "src/model/draft_stage.hpp"

#include "src/model/blocks/layer_options.hpp"
#include "src/model/parameter_source.hpp"

namespace vocabpipe {

namespace {

DepthProjection projection_of(const ModelConfig& config, int depth,
                              std::span<Parameter> parameters) {
    HeldParameters held(parameters);
    return {depth_projection_options(config, depth), held};
}

std::unique_ptr<TransformerStage> layer_of(const ModelConfig& config,
                                           const DraftStageOptions& options,
                                           const kernels::Operators& operators,
                                           std::span<Parameter> parameters) {
    ModelConfig of_tokens = config;
    of_tokens.seq_length = options.tokens;
    const StageOptions of_layer{
        .layers = {.first = config.num_layers + options.depth, .count = 1, .depth_norm = true},
        .threads = options.threads,
        .cache = options.cache,
        .streams = false};
    const size_t count = stage_parameters(config, of_layer.layers).size();
    return std::make_unique<TransformerStage>(
        of_tokens, of_layer, operators, parameters.empty() ? parameters : parameters.last(count),
        options.rotary);
}

}  // namespace

DraftStage::DraftStage(const ModelConfig& config, const DraftStageOptions& options,
                       const kernels::Operators& operators, std::span<Parameter> parameters)
    : options_(options),
      hidden_size_(config.hidden_size),
      dtype_(config.dtype),
      parameters_(parameters),
      projection_(projection_of(config, options.depth, parameters)),
      layer_(layer_of(config, options, operators, parameters)) {}

DraftStage::Memory DraftStage::memory(Views& views) const {
    TokenViews tokens(views, options_.tokens, dtype_);
    Memory memory;
    memory.projection = projection_.saved_views(tokens, tokens);
    memory.x = tokens.take(hidden_size_);
    memory.layer.saved = views.take_bytes(layer_->bytes().saved);
    return memory;
}

StageBytes DraftStage::bytes() const {
    StageBytes bytes = layer_->bytes();
    Views counted;
    static_cast<void>(memory(counted));
    bytes.saved = counted.used();
    return bytes;
}

void DraftStage::forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                         Activations activations, Bytes workspace) {
    Views views(activations.saved);
    const Memory memory = this->memory(views);
    const Tensor hidden = options_.hidden.row_range(options_.cache->tokens(), x.rows);
    ctx.operators().convert(ctx, x, memory.projection.embedded);
    ctx.operators().convert(ctx, hidden, memory.projection.hidden);
    projection_.forward({.ctx = ctx, .microbatch = microbatch}, memory.projection, memory.x);
    layer_->forward(ctx, microbatch, memory.x, y, memory.layer, workspace);
}

}  // namespace vocabpipe
