// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/latent_attention.hpp"

#include "src/model/blocks/heads.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

using Options = LatentAttentionOptions;

kernels::AttentionShape shape_of(const Options& o) {
    return {.heads = o.heads,
            .head_size = o.rope_size + o.key_size,
            .kv_heads = o.heads,
            .value_head_size = o.value_size,
            .scale = o.scale};
}

const Options& checked(const Options& options) {
    if (options.tensor != 1 || options.context != 1) {
        throw UsageError(
            "latent attention is computed by one rank per layer; set tensor and context "
            "parallelism to 1");
    }
    const std::pair<const char*, int64_t> sizes[] = {{"heads", options.heads},
                                                     {"kv_rank", options.kv_rank},
                                                     {"key_size", options.key_size},
                                                     {"rope_size", options.rope_size},
                                                     {"value_size", options.value_size}};
    for (const auto& [name, size] : sizes) {
        if (size < 1) {
            throw UsageError("latent attention: " + std::string(name) + " is " +
                             std::to_string(size) + "; it must be at least 1");
        }
    }
    return options;
}

LinearOptions linear(const Options& options, const LinearFiles& files, std::vector<int64_t> out,
                     int64_t in) {
    return {.files = files,
            .out = std::move(out),
            .in = in,
            .init_std = options.init_std,
            .lora = options.lora};
}

LinearOptions projection(const Options& options, int64_t in) {
    LinearOptions of = linear(options, options.proj, {options.hidden_size}, in);
    of.init_std = options.proj_init_std;
    return of;
}

NormOptions sized(NormOptions options, int64_t size) {
    options.size = size;
    return options;
}

/// The model's table of angles, which has rope_size columns: a wider one would rotate columns
/// without positions.
ConstTensor rotary_table(const StagePass& pass, const Options& options) {
    const ConstTensor table =
        pass.rotary->of(options.rope, pass.microbatch.seq_length, pass.cached.count);
    if (table.cols != options.rope_size) {
        throw UsageError("latent attention: the table of rotary angles has " +
                         std::to_string(table.cols) + " columns; rope_size is " +
                         std::to_string(options.rope_size));
    }
    return table;
}

/// Columns of a head of k in qkv.
template <class AnyTensor>
AnyTensor key_of(AnyTensor qkv, const kernels::AttentionShape& shape, int64_t head) {
    return keys_of(qkv, shape).column_range(head * shape.head_size, shape.head_size);
}

}  // namespace

LatentAttention::LatentAttention(const Options& options, ParameterSource& parameters)
    : options_(checked(options)),
      shape_(shape_of(options)),
      down_(linear(options, options.down, {q_columns(), options.kv_rank + options.rope_size},
                   options.hidden_size),
            parameters),
      q_norm_(options.q_rank > 0
                  ? std::optional<Norm>(std::in_place, sized(options.q_norm, options.q_rank),
                                        parameters)
                  : std::nullopt),
      q_up_(options.q_rank > 0
                ? std::optional<Linear>(
                      std::in_place,
                      linear(options, options.q_up, {shape_.query_columns()}, options.q_rank),
                      parameters)
                : std::nullopt),
      kv_norm_(sized(options.kv_norm, options.kv_rank), parameters),
      kv_up_(linear(options, options.kv_up,
                    {options.heads * options.key_size, options.heads * options.value_size},
                    options.kv_rank),
             parameters),
      proj_(projection(options, shape_.output_columns()), parameters) {}

int64_t LatentAttention::q_columns() const {
    return options_.q_rank > 0 ? options_.q_rank : shape_.query_columns();
}

LatentAttention::Saved LatentAttention::saved_views(SavedViews& views) const {
    Saved saved;
    saved.down = views.costly.take(q_columns() + options_.kv_rank + options_.rope_size);
    if (q_up_) {
        saved.q_statistics = q_norm_->statistics_view(views.cheap);
        saved.q_latent = views.cheap.take(options_.q_rank);
    }
    saved.kv_statistics = kv_norm_.statistics_view(views.cheap);
    saved.kv_latent = views.cheap.take(options_.kv_rank);
    saved.qkv = views.cheap.take(shape_.qkv_columns());
    saved.log_sum_exp = views.costly.statistics(shape_.heads);
    saved.heads = views.costly.take(shape_.output_columns());
    return saved;
}

LatentAttention::Gradients LatentAttention::gradient_views(TokenViews& views) const {
    Gradients gradients;
    gradients.qkv = views.take(shape_.qkv_columns());
    gradients.kv_up = views.take(up_columns());
    gradients.kv_latent = views.take(options_.kv_rank);
    if (q_up_) gradients.q_latent = views.take(options_.q_rank);
    gradients.down = views.take(q_columns() + options_.kv_rank + options_.rope_size);
    return gradients;
}

ScratchSize LatentAttention::scratch(const ScratchFor& use) const {
    const kernels::AttentionShape of = with_sequences(shape_, use.sequences, use.seq_length);
    const int64_t columns =
        std::max({shape_.output_columns(), up_columns(), options_.heads * options_.rope_size});
    const ScratchSize q_up = q_up_ ? q_up_->adapter_scratch(use) : ScratchSize();
    return ScratchSize{
        .columns = columns,
        .workspace = use.operators.attention_workspace_bytes(of, use.dtype, use.threads)}
        .or_larger(down_.adapter_scratch(use))
        .or_larger(q_up)
        .or_larger(kv_up_.adapter_scratch(use))
        .or_larger(proj_.scratch(use));
}

void LatentAttention::expand(const StagePass& pass, const Saved& saved) const {
    const kernels::Operators& op = pass.op();
    const kernels::AttentionShape shape = shape_in_pass(shape_, pass);
    const int64_t key_size = options_.key_size, rope_size = options_.rope_size;
    const ConstTensor q = saved.down.column_range(0, q_columns());
    if (q_up_) {
        q_norm_->forward(pass, q, {}, saved.q_latent, saved.q_statistics);
        q_up_->forward(pass, saved.q_latent, queries_of(saved.qkv, shape));
    } else {
        op.convert(pass.ctx, q, queries_of(saved.qkv, shape));
    }
    kv_norm_.forward(pass, saved.down.column_range(q_columns(), options_.kv_rank), {},
                     saved.kv_latent, saved.kv_statistics);
    const Tensor up = pass.scratch.columns(up_columns());
    kv_up_.forward(pass, saved.kv_latent, up);
    const ConstTensor rotary_key =
        saved.down.column_range(q_columns() + options_.kv_rank, rope_size);
    for (int64_t head = 0; head < shape.heads; ++head) {
        const Tensor key = key_of(saved.qkv, shape, head);
        op.convert(pass.ctx, rotary_key, key.column_range(0, rope_size));
        op.convert(pass.ctx, up.column_range(head * key_size, key_size),
                   key.column_range(rope_size, key_size));
    }
    op.convert(pass.ctx, up.column_range(shape.heads * key_size, shape.value_columns()),
               values_of(saved.qkv, shape));
    op.rotary_forward(pass.ctx, rotary_table(pass, options_), shape, saved.qkv);
}

void LatentAttention::collect_keys(const StagePass& pass, const Gradients& gradients) const {
    const kernels::Operators& op = pass.op();
    const kernels::AttentionShape shape = shape_in_pass(shape_, pass);
    const int64_t key_size = options_.key_size, rope_size = options_.rope_size;
    // The rotary key's gradient of each head, block after block.
    const Tensor rows = pass.scratch.columns(shape.heads * rope_size);
    const Tensor by_head(rows.data, shape.heads * rows.rows, rope_size, rows.dtype);
    for (int64_t head = 0; head < shape.heads; ++head) {
        const ConstTensor key = key_of(gradients.qkv, shape, head);
        op.convert(pass.ctx, key.column_range(0, rope_size),
                   by_head.row_range(head * rows.rows, rows.rows));
        op.convert(pass.ctx, key.column_range(rope_size, key_size),
                   gradients.kv_up.column_range(head * key_size, key_size));
    }
    op.fold_partials(pass.ctx, by_head, shape.heads, {}, {},
                     gradients.down.column_range(q_columns() + options_.kv_rank, rope_size));
    op.convert(pass.ctx, values_of(gradients.qkv, shape),
               gradients.kv_up.column_range(shape.heads * key_size, shape.value_columns()));
}

void LatentAttention::forward(const StagePass& pass, ConstTensor x, const Saved& saved,
                              ConstTensor residual, Tensor out) const {
    pass.input.all();
    down_.forward(pass, x, saved.down);
    expand(pass, saved);
    const kernels::AttentionShape shape = shape_in_pass(shape_, pass);
    keep_keys_values(pass, shape, saved.qkv);
    attend(pass, shape, saved.qkv, {}, saved.heads, saved.log_sum_exp);
    proj_.forward_onto(pass, saved.heads, residual, out);
    pass.output.all();
}

void LatentAttention::recompute(const StagePass& pass, ConstTensor /*x*/,
                                const Saved& saved) const {
    expand(pass, saved);
}

void LatentAttention::backward_input(const StagePass& pass, ConstTensor dy, ConstTensor /*x*/,
                                     const Saved& saved, const Gradients& gradients,
                                     Tensor dx) const {
    const kernels::Operators& op = pass.op();
    const kernels::AttentionShape shape = shape_in_pass(shape_, pass);
    pass.input.all();
    const Tensor dheads = pass.scratch.columns(shape.output_columns());
    proj_.backward_input(pass, dy, dheads);
    attend_backward(pass, shape, dheads, saved.qkv, {}, saved.heads, saved.log_sum_exp,
                    gradients.qkv);
    op.rotary_backward(pass.ctx, rotary_table(pass, options_), shape, gradients.qkv);
    collect_keys(pass, gradients);
    kv_up_.backward_input(pass, gradients.kv_up, gradients.kv_latent);
    kv_norm_.backward_input(
        pass, gradients.kv_latent, saved.down.column_range(q_columns(), options_.kv_rank),
        saved.kv_statistics, {}, gradients.down.column_range(q_columns(), options_.kv_rank));
    const Tensor dq = gradients.down.column_range(0, q_columns());
    if (q_up_) {
        q_up_->backward_input(pass, queries_of(gradients.qkv, shape), gradients.q_latent);
        q_norm_->backward_input(pass, gradients.q_latent, saved.down.column_range(0, q_columns()),
                                saved.q_statistics, {}, dq);
    } else {
        op.convert(pass.ctx, queries_of(gradients.qkv, shape), dq);
    }
    down_.backward_input(pass, gradients.down, dx);
    pass.output.all();
}

void LatentAttention::backward_weight(const StagePass& pass, ConstTensor dy, ConstTensor x,
                                      const Saved& saved, const Gradients& gradients) const {
    proj_.backward_weight(pass, dy, saved.heads);
    kv_up_.backward_weight(pass, gradients.kv_up, saved.kv_latent);
    kv_norm_.backward_weight(pass, gradients.kv_latent,
                             saved.down.column_range(q_columns(), options_.kv_rank),
                             saved.kv_statistics);
    if (q_up_) {
        q_up_->backward_weight(pass, queries_of(gradients.qkv, shape_), saved.q_latent);
        q_norm_->backward_weight(pass, gradients.q_latent, saved.down.column_range(0, q_columns()),
                                 saved.q_statistics);
    }
    down_.backward_weight(pass, gradients.down, x);
}

BlockWork LatentAttention::work(int64_t seq_length) const {
    BlockWork work{.products = {down_.product(), kv_up_.product(), proj_.product()},
                   .heads_flops = heads_flops(shape_, seq_length),
                   .recompute_flops = kv_up_.product().flops(),
                   .heads = shape_.heads,
                   .query_columns = shape_.query_columns(),
                   .kv_columns = shape_.key_value_columns()};
    // Spread: k and v, and q where no product writes it.
    int64_t normed = options_.kv_rank;
    int64_t spread = shape_.key_value_columns();
    if (q_up_) {
        normed += options_.q_rank;
        work.products.push_back(q_up_->product());
        work.recompute_flops += q_up_->product().flops();
    } else {
        spread += shape_.query_columns();
    }
    const int64_t rotated = 2 * shape_.heads * options_.rope_size;
    work.moved.forward = work.moved.recompute = 2 * (normed + spread + rotated);
    // A sum over heads reads the rotary key's gradients once more.
    work.moved.backward =
        3 * normed + 2 * (spread + rotated) + (shape_.heads + 1) * options_.rope_size;
    return work;
}

}  // namespace vocabpipe
