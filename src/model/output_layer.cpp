// SPDX-License-Identifier: Apache-2.0
#include "src/model/output_layer.hpp"

#include "src/model/blocks/row_pieces.hpp"
#include "vocabpipe/error.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

static_assert(StepSizes::kStatistics == kernels::kStatistics);  // buffers as lowering sizes them
static_assert(TokenRecord{} == TokenRecord::loss);              // the first of any set

namespace {

std::vector<std::byte> ones(int64_t count, DType type) {
    std::vector<std::byte> bytes(static_cast<size_t>(count * size_of(type)));
    for (int64_t i = 0; i < count; ++i) {
        const uint16_t narrow = 0x3f80;  // 1 in bf16
        const float wide = 1;
        if (type == DType::bf16) {
            std::memcpy(bytes.data() + i * 2, &narrow, 2);
        } else {
            std::memcpy(bytes.data() + i * 4, &wide, 4);
        }
    }
    return bytes;
}

/// The factors that products read: without what has become a part of exp_logits.
ConstTensor of_products(ConstTensor factors) {
    return factors.column_range(0, StepSizes::kFactors);
}

/// A bit for each row of the shard.
std::vector<uint32_t> bits_of(const std::vector<bool>& allowed,
                              const kernels::VocabularyShard& shard) {
    std::vector<uint32_t> words(static_cast<size_t>((shard.rows + 31) / 32));
    for (int64_t j = 0; j < shard.rows; ++j) {
        if (allowed[static_cast<size_t>(shard.first_row + j)]) {
            words[static_cast<size_t>(j / 32)] |= 1U << (j % 32);
        }
    }
    return words;
}

}  // namespace

ShardBytes output_shard_bytes(const kernels::Operators& operators, int64_t tokens, int64_t hidden,
                              int64_t rows, DType dtype, bool keeps_logits) {
    if (rows == 0) return {};
    const int64_t bytes = size_of(dtype) + (keeps_logits ? size_of(DType::fp32) : 0);
    return {.exp_logits = tokens * exp_logits_columns(rows) * bytes,
            .score_workspace = operators.vocabulary_score_workspace_bytes(tokens, rows, dtype),
            .weight_gradient_workspace =
                operators.vocabulary_weight_gradient_workspace_bytes(tokens, hidden, dtype)};
}

ShardedOutputLayer::ShardedOutputLayer(Device& device, std::span<Parameter> parameters,
                                       int64_t tokens, kernels::LossOptions options,
                                       const OutputRecords& records)
    : device_(device),
      parameters_(parameters),
      shard_{parameters.front().first_row, parameters.front().weight.rows,
             parameters.front().logical_rows},
      tokens_(tokens),
      training_(options),
      depths_(static_cast<size_t>(records.predicted_tokens) - 1),
      rows_(device, tokens, records.predicted_tokens, records.tensor),
      loss_(records.loss) {
    training_.records = training_.records | records.options.columns;
    if (loss_) {
        if (loss_->on_host() && device.asynchronous()) {
            throw UsageError(
                "the loss reads memory of the host, and the rank's device has its own; use a "
                "TokenLoss that enqueues its work there, or ranks on hosts");
        }
        training_.records = training_.records | loss_->reads();
        training_.caps_later = loss_->has_entropy_slope() && options.logit_softcap > 0;
        gradients_ = device.allocate(static_cast<uint64_t>(2 * tokens) * sizeof(float),
                                     "the gradients of a microbatch's tokens");
    }
    training_.temperature = records.options.temperature;
    if (!records.options.allowed_tokens.empty()) {
        const std::vector<uint32_t> words = bits_of(records.options.allowed_tokens, shard_);
        allowed_ = device.allocate(words.size() * sizeof(uint32_t), "the allowed tokens");
        device.upload(std::as_bytes(std::span(words)), allowed_.data());
        training_.allowed = reinterpret_cast<const uint32_t*>(allowed_.data());
    }
    options_ = training_;
    const bool kept = reports() || records.options.columns.has(TokenRecord::label_rank);
    if (records.options.columns.empty() || !kept) {
        made_ = device.allocate(static_cast<uint64_t>(record_bytes(
                                    training_.records, 1, tokens * records.predicted_tokens)),
                                "the losses of a microbatch's tokens");
    }
    if (options_.label_smoothing > 0) {
        column_sum_ = device.allocate(
            static_cast<uint64_t>(device.operators().vocabulary_input_gradient_workspace_bytes(
                parameters.front().weight.cols)),
            "the sum of the output shard's rows");
    }
    if (records.hidden_sums && reports()) {
        const std::vector<std::byte> values =
            ones(tokens * kSumRows, parameters.front().weight.dtype);
        ones_ = device.allocate(values.size(), "what adds up hidden states");
        device.upload(values, ones_.data());
    }
}

void ShardedOutputLayer::begin_step(int microbatches) {
    const int64_t sequences = std::exchange(next_sequences_, 0);
    options_ = training_;
    if (sequences > 0) {  // plain cross-entropies
        options_.label_smoothing = 0;
        options_.z_loss = 0;
    }
    parts_ = sequences > 0 ? sequences : 1;
    losses_of_step_ = static_cast<size_t>(microbatches * parts_);
    depths_of_step_ = sequences > 0 ? 0 : depths_;
    microbatches_of_step_ = static_cast<size_t>(microbatches);
    rows_.begin_step(microbatches);
    const uint64_t bytes = losses_of_step_ * (1 + depths_of_step_) * sizeof(double);
    if (losses_.size() < bytes) {
        losses_ = device_.allocate(bytes, "the losses of a step");
        zeros_ = device_.allocate_staging(bytes);
        std::memset(zeros_.data(), 0, bytes);
    }
    // Before the passes that follow on the compute lane, without waiting for the device.
    device_.enqueue_upload(zeros_.bytes().first(bytes), losses_.data());
    const uint64_t kept =
        made_.bytes().empty()
            ? static_cast<uint64_t>(record_bytes(training_.records, microbatches, tokens_))
            : 0;
    if (records_.size() < kept) {
        records_ = device_.allocate(kept, "the records of a step's tokens");
    }
    const uint64_t sums =
        losses_of_step_ * static_cast<uint64_t>(kSumRows * hidden()) * sizeof(float);
    if (!ones_.bytes().empty() && hidden_sums_.size() < sums) {
        hidden_sums_ = device_.allocate(sums, "the hidden states of a step's sequences");
    }
}

ConstTensor ShardedOutputLayer::records() const {
    if (records_.bytes().empty()) return {};
    return {records_.data(), static_cast<int64_t>(microbatches_of_step_) * training_.records.size(),
            tokens_, DType::fp32};
}

std::span<float> ShardedOutputLayer::records_of(const Microbatch& microbatch) const {
    const bool here = made_.bytes().empty();
    const int64_t first = here ? microbatch.index * options_.records.size() * tokens_ : 0;
    return {reinterpret_cast<float*>((here ? records_ : made_).data()) + first,
            static_cast<size_t>(options_.records.size()) * microbatch.labels.size()};
}

std::span<const float> ShardedOutputLayer::hidden_sums() const {
    if (ones_.bytes().empty()) return {};
    return {reinterpret_cast<const float*>(hidden_sums_.data()),
            losses_of_step_ * static_cast<size_t>(kSumRows * hidden())};
}

void ShardedOutputLayer::sum_hidden(Context& ctx, const Microbatch& microbatch, ConstTensor x) {
    const int64_t tokens = microbatch.size() / parts_;
    for (int64_t part = 0; part < parts_; ++part) {
        const ConstTensor all_ones(ones_.data(), tokens, kSumRows, x.dtype);
        const Tensor sum(hidden_sums_.data() + (microbatch.index * parts_ + part) * kSumRows *
                                                   hidden() * size_of(DType::fp32),
                         kSumRows, hidden(), DType::fp32);
        ctx.operators().linear_backward_weight(ctx, all_ones, x.row_range(part * tokens, tokens),
                                               sum, {}, false);
    }
}

void ShardedOutputLayer::score(Context& ctx, const Microbatch& given, ConstTensor x,
                               Tensor exp_logits, Tensor statistics, Bytes workspace) {
    rows_.put(ctx, given);
    const Microbatch microbatch = rows_.ordered(given);
    RowPieces::of_input(ctx, x.rows).each([&](RowRange rows) {
        const std::span<const int32_t> labels =
            rows.end < 0 ? microbatch.labels
                         : microbatch.labels.subspan(static_cast<size_t>(rows.first),
                                                     static_cast<size_t>(rows.size()));
        ctx.operators().vocabulary_score(ctx, rows_of(x, rows), parameters_.front().weight, labels,
                                         shard_, options_, rows_of(of_shard(exp_logits), rows),
                                         rows_of(of_records(statistics), rows),
                                         rows_of(logits_of(exp_logits), rows), workspace);
    });
    if (const ConstTensor ids = listed_ids(microbatch); ids) {
        ctx.operators().listed_logits(ctx, x, parameters_.front().weight, ids, shard_, options_,
                                      listed_of(statistics));
    }
    if (!ones_.bytes().empty()) sum_hidden(ctx, microbatch, x);
}

ConstTensor ShardedOutputLayer::listed_ids(const Microbatch& microbatch) const {
    const int64_t count = loss_ ? loss_->listed() : 0;
    const int64_t tokens = microbatch.size();
    // Evaluations have no columns, and read no list.
    if (count == 0 || std::ssize(microbatch.columns) < 2 * count * tokens) return {};
    return {microbatch.columns.data() + count * tokens, count, tokens, DType::fp32};
}

void ShardedOutputLayer::input_product(Context& ctx, ConstTensor exp_logits, Tensor u) {
    ctx.operators().vocabulary_input_product(ctx, of_shard(exp_logits), parameters_.front().weight,
                                             u);
}

void ShardedOutputLayer::combine_softmax(Context& ctx, const Microbatch& given,
                                         ConstTensor statistics, int member, Tensor factors) {
    const Microbatch microbatch = rows_.ordered(given);
    const std::span<float> records = records_of(microbatch);
    const kernels::Operators& op = ctx.operators();
    if (loss_ && factors) {
        apply_loss(ctx, microbatch, statistics, member, records, factors);
    } else {
        op.combine_statistics(ctx, of_records(statistics), microbatch.labels,
                              microbatch.loss_gradient, shard_, member, options_, factors, records);
    }
    const auto parts = static_cast<size_t>(parts_);
    const size_t tokens = static_cast<size_t>(microbatch.size()) / parts;
    // The loss is the first record; those of a depth come after those of the one before it.
    const std::span<const float> losses = rows_.by_depth(ctx, given, records);
    for (size_t part = 0; part * tokens < given.labels.size(); ++part) {
        const size_t first = part * tokens;
        op.weighted_sum(ctx, losses.subspan(first, tokens),
                        given.loss_gradient.subspan(first, tokens),
                        loss_of(part / parts * losses_of_step_ +
                                static_cast<size_t>(microbatch.index) * parts + part % parts));
    }
}

void ShardedOutputLayer::apply_loss(Context& ctx, const Microbatch& microbatch,
                                    ConstTensor statistics, int member, std::span<float> records,
                                    Tensor factors) {
    const auto tokens = static_cast<size_t>(microbatch.size());
    if (microbatch.columns.size() < static_cast<size_t>(loss_->columns()) * tokens) {
        throw UsageError("the loss reads " + std::to_string(loss_->columns()) +
                         " columns of numbers for every token, but microbatch " +
                         std::to_string(microbatch.index) + " has " +
                         std::to_string(microbatch.columns.size() / tokens) +
                         "; set Microbatch::columns");
    }
    const kernels::Operators& op = ctx.operators();
    const ConstTensor of_all = of_records(statistics);
    op.combine_statistics(ctx, of_all, microbatch.labels, microbatch.loss_gradient, shard_, member,
                          options_, {}, records);
    const std::span<float> gradients(reinterpret_cast<float*>(gradients_.data()), 2 * tokens);
    const TokenLossOutput out{.loss = records.first(tokens),
                              .gradient = gradients.first(tokens),
                              .entropy = gradients.last(loss_->has_entropy_slope() ? tokens : 0),
                              .slopes = slopes_of(factors)};
    loss_->evaluate(ctx,
                    {.labels = microbatch.labels,
                     .weights = microbatch.loss_gradient,
                     .columns = microbatch.columns,
                     .records = options_.records,
                     .values = records,
                     .listed = listed_of(statistics),
                     .layer = options_},
                    out);
    op.combine_statistics(ctx, of_all, microbatch.labels, {out.gradient, out.entropy}, shard_,
                          member, options_, factors_of_loss(factors), {});
}

void ShardedOutputLayer::rank_labels(Context& ctx, const Microbatch& microbatch,
                                     ConstTensor statistics, ConstTensor exp_logits) {
    const auto tokens = static_cast<size_t>(microbatch.size());
    const auto first = static_cast<size_t>(options_.records.index_of(TokenRecord::label_rank));
    ctx.operators().label_ranks(ctx, logits_of(exp_logits), statistics, microbatch.labels, shard_,
                                records_of(microbatch).subspan(first * tokens, tokens));
}

void ShardedOutputLayer::prepare_gradient(Context& ctx, Tensor exp_logits, Tensor factors) {
    if (!loss_ || !loss_->has_entropy_slope()) return;
    ctx.operators().weigh_by_entropy(ctx, options_, of_shard(exp_logits), factors_of_loss(factors));
}

void ShardedOutputLayer::finish_input_gradient(Context& ctx, const Microbatch& given,
                                               ConstTensor factors, Tensor u) {
    const Microbatch microbatch = rows_.ordered(given);
    ctx.operators().vocabulary_input_gradient(
        ctx, u, of_products(factors), parameters_.front().weight, microbatch.labels,
        microbatch.loss_gradient, shard_, options_, column_sum_.bytes());
    if (const ConstTensor ids = listed_ids(microbatch); ids) {
        ctx.operators().listed_input_gradient(ctx, slopes_of(factors), parameters_.front().weight,
                                              microbatch.labels, ids, shard_, u);
    }
}

void ShardedOutputLayer::weight_gradient(Context& ctx, const Microbatch& given, ConstTensor x,
                                         ConstTensor exp_logits, ConstTensor factors,
                                         Bytes workspace, bool accumulate) {
    if (!parameters_.front().gradient) return;
    const Microbatch microbatch = rows_.ordered(given);
    ctx.operators().vocabulary_weight_gradient(ctx, x, of_shard(exp_logits), of_products(factors),
                                               microbatch.labels, microbatch.loss_gradient, shard_,
                                               options_, parameters_.front().gradient, accumulate,
                                               workspace);
    if (const ConstTensor ids = listed_ids(microbatch); ids) {
        ctx.operators().listed_weight_gradient(ctx, slopes_of(factors), x, microbatch.labels, ids,
                                               shard_, parameters_.front().gradient);
    }
}

}  // namespace vocabpipe
