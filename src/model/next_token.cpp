// SPDX-License-Identifier: Apache-2.0
#include "src/model/next_token.hpp"

#include "src/model/model_rank_internals.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace vocabpipe {

namespace {

/// Contexts are filled up to a multiple of this, so that kernels are made for a few lengths only.
/// What follows the context does not change what came before: attention is causal.
constexpr int64_t kLengthStep = 64;

}  // namespace

std::vector<float> NextToken::logits(Context& ctx, std::span<const int32_t> tokens) {
    const ModelConfig& config = model_.config();
    const auto seen =
        static_cast<int64_t>(std::min(tokens.size(), static_cast<size_t>(config.seq_length)));
    const int64_t length =
        std::min((seen + kLengthStep - 1) / kLengthStep * kLengthStep, config.seq_length);
    std::vector<int32_t> padded(static_cast<size_t>(length), 0);
    std::ranges::copy(tokens.last(static_cast<size_t>(seen)), padded.begin());
    const Microbatch context{.index = 0,
                             .sequences = 1,
                             .seq_length = length,
                             .tokens = padded,
                             .labels = {},
                             .loss_gradient = {}};

    TransformerStage stage = ModelRankInternals::whole_stage(model_, length);
    if (buffers_.length != length) {
        buffers_ = {};  // frees the old ones first
        const StageBytes bytes = stage.bytes();
        const auto allocate = [&](int64_t size) {
            return model_.device().allocate(static_cast<uint64_t>(size),
                                            "a forward of one context");
        };
        const int64_t boundary = length * config.hidden_size * size_of(config.dtype);
        buffers_ = {.length = length,
                    .x = allocate(boundary),
                    .y = allocate(boundary),
                    .saved = allocate(bytes.saved),
                    .workspace = allocate(bytes.forward_workspace)};
    }
    const Tensor x(buffers_.x.data(), length, config.hidden_size, config.dtype);
    const Tensor y(buffers_.y.data(), length, config.hidden_size, config.dtype);
    model_.input()->embed(ctx, context, x);
    stage.forward(ctx, context, x, y, {.saved = buffers_.saved.bytes(), .recomputed = {}},
                  buffers_.workspace.bytes());

    std::vector<float> logits(static_cast<size_t>(config.vocab_size));
    ctx.operators().linear_forward(ctx, y.row_range(seen - 1, 1),
                                   model_.output()->parameters().front().weight, {},
                                   Tensor(logits.data(), 1, config.vocab_size, DType::fp32));
    if (const float cap = config.logit_softcap; cap > 0) {
        for (float& z : logits) z = cap * std::tanh(z / cap);
    }
    return logits;
}

int32_t sample(std::span<const float> logits, const SamplingOptions& options, double u) {
    if (!std::ranges::all_of(logits, [](float z) { return std::isfinite(z); })) {
        throw Error(ExitCode::not_finite,
                    "the model's logits are not all finite: its training has diverged; load an "
                    "earlier step");
    }
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::ranges::stable_sort(ids, [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    if (options.temperature <= 0) return ids.front();
    if (options.top_k > 0 && options.top_k < static_cast<int64_t>(ids.size())) {
        ids.resize(static_cast<size_t>(options.top_k));
    }
    const double largest = logits[static_cast<size_t>(ids.front())];
    std::vector<double> weights;
    double sum = 0;
    for (const int32_t id : ids) {
        weights.push_back(
            std::exp((logits[static_cast<size_t>(id)] - largest) / options.temperature));
        sum += weights.back();
    }
    size_t kept = 0;
    double nucleus = 0;
    while (kept < weights.size() && (kept == 0 || nucleus < options.top_p * sum)) {
        nucleus += weights[kept++];
    }
    double rest = u * nucleus;
    for (size_t i = 0; i + 1 < kept; ++i) {
        rest -= weights[i];
        if (rest < 0) return ids[i];
    }
    return ids[kept - 1];
}

}  // namespace vocabpipe
