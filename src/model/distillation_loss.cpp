// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/distillation_loss.hpp"

#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"

#include <string>

namespace vocabpipe {

DistillationLoss::DistillationLoss(const DistillationOptions& options) : options_(options) {
    if (options.top_k < 1 || options.top_k > TokenRecords::kMostBest) {
        throw UsageError("DistillationOptions::top_k " + std::to_string(options.top_k) +
                         ": must be from 1 to " + std::to_string(TokenRecords::kMostBest));
    }
    if (!(options.kl_share >= 0 && options.kl_share <= 1)) {
        throw UsageError("DistillationOptions::kl_share " + std::to_string(options.kl_share) +
                         ": must be from 0 to 1");
    }
}

void DistillationLoss::evaluate(Context& ctx, const TokenLossInput& in,
                                const TokenLossOutput& out) const {
    const ConstTensor teacher(in.columns.data(), options_.top_k,
                              static_cast<int64_t>(in.labels.size()), DType::fp32);
    ctx.operators().distillation_loss(ctx, options_, in.layer, in.listed, in.labels, in.weights,
                                      in.of(TokenRecord::logprob), in.of(TokenRecord::logsumexp),
                                      teacher, out.loss, out.gradient, out.slopes);
}

}  // namespace vocabpipe
