// SPDX-License-Identifier: Apache-2.0
#include "src/train/profile/timed_attention.hpp"

#include "src/model/blocks/gathered_keys.hpp"
#include "src/model/blocks/panel_exchange.hpp"
#include "src/model/views.hpp"
#include "src/train/profile/timed_team.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace vocabpipe {

namespace {

using Floats = std::vector<float>;

constexpr int kSegments = 2;  ///< of the sequence, on every rank

/// The most tokens, up to `rows`, that all members can share.
int64_t tokens_of(int64_t rows, int members) {
    const int64_t segments = kSegments * members;
    return std::max<int64_t>(rows / segments, 1) * segments;
}
/// Columns of a head: 64, or all where these are not a multiple of 64.
int64_t head_size_of(int64_t columns) {
    return columns % 64 == 0 ? 64 : columns;
}

/// Attention on one rank.
class AttentionTeam {
public:
    AttentionTeam(Communicator& world, Device& device, const OverlapCase& c)
        : device_(device),
          cut_(tokens_of(c.rows, world.size()), world.rank(), world.size()),
          pieces_(c.pieces),
          context_(device.context(1, [this] {
              if (link_ != nullptr) link_->poll();
          })) {
        const int64_t heads = c.inner / head_size_of(c.inner);
        shape_ = {.sequences = 1,
                  .seq_length = cut_.own_length(),
                  .heads = heads,
                  .head_size = head_size_of(c.inner),
                  .kv_heads = heads};
        Views sizes;
        place(sizes);
        memory_ = device.allocate(static_cast<uint64_t>(sizes.used()), "attention to measure with");
        Views views(memory_.bytes());
        place(views);
        const Floats qkv = random_floats(qkv_.size(), world.rank());
        device.upload(std::as_bytes(std::span(qkv)), static_cast<std::byte*>(qkv_.data));
        const Floats keys = random_floats(keys_.size(), 1000 + world.rank());
        device.upload(std::as_bytes(std::span(keys)), static_cast<std::byte*>(keys_.data));
    }

    void use(TileLink& link) { link_ = &link; }
    [[nodiscard]] int64_t received_bytes() const {
        int64_t rows = -cut_.own_length();
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int segment = 0; segment < kSegments; ++segment) {
                rows += seen_rows(cut_.rank(), member, segment);
            }
        }
        return rows * shape_.key_value_columns() * size_of(DType::fp32);
    }

    /// Attention of the rank's queries, to other keys of as many tokens.
    void compute() {
        for (int segment = 0; segment < kSegments; ++segment) {
            const auto part = [&](Tensor tokens) {
                return tokens.row_range(segment * cut_.segment_length(), cut_.segment_length());
            };
            kernels::AttentionShape shape = shape_;
            shape.seq_length = cut_.segment(segment).end;
            shape.queries = cut_.segment_length();
            context_.operators().causal_attention_forward(
                context_, part(qkv_).column_range(0, shape.query_columns()),
                keys_.row_range(0, shape.seq_length), shape, {}, part(heads_), part(log_sum_exp_),
                workspace_);
        }
    }
    /// The messages without attention.
    void exchange() {
        PanelExchange exchange(*link_, memory_.bytes());
        const int self = cut_.rank();
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int segment = 0; segment < kSegments; ++segment) {
                const Tensor own = keys_.row_range(segment * cut_.segment_length(),
                                                   seen_rows(member, self, segment));
                const Tensor other =
                    arrived_.row_range((member * kSegments + segment) * cut_.segment_length(),
                                       seen_rows(self, member, segment));
                exchange.send(member, own);
                exchange.receive(member, member == self ? own : other);
            }
        }
        exchange.start("keys and values");
        exchange.release(kSegments);
        exchange.finish();
    }
    void blocking() { attend(1); }
    void overlapped() { attend(pieces_); }

    [[nodiscard]] Floats result() const {
        Floats values(static_cast<size_t>(heads_.size()));
        device_.download(static_cast<const std::byte*>(heads_.data),
                         std::as_writable_bytes(std::span(values)));
        return values;
    }
    void poison() {
        const Floats nan(static_cast<size_t>(heads_.size()),
                         std::numeric_limits<float>::quiet_NaN());
        device_.upload(std::as_bytes(std::span(nan)), static_cast<std::byte*>(heads_.data));
    }

private:
    /// Rows of a segment of `owner` that travel to `member`.
    [[nodiscard]] int64_t seen_rows(int member, int owner, int segment) const {
        return cut_.sees(member, owner, segment) ? cut_.segment_length() : 0;
    }
    [[nodiscard]] GatheredKeys gathered(int panels) const {
        return {shape_, panels_of(shape_.kv_heads, panels)};
    }
    void place(Views& views) {
        const auto take = [&](int64_t rows, int64_t columns) {
            return views.take(rows, columns, DType::fp32);
        };
        qkv_ = take(cut_.own_length(), shape_.qkv_columns());
        heads_ = take(cut_.own_length(), shape_.output_columns());
        log_sum_exp_ = take(cut_.own_length(), shape_.heads);
        keys_ = take(cut_.seq_length(), shape_.key_value_columns());
        arrived_ = take(cut_.seq_length(), shape_.key_value_columns());
        const ScratchFor use{.operators = device_.operators(),
                             .seq_length = cut_.own_length(),
                             .context = cut_.ranks()};
        workspace_ = views.take_bytes(gathered(1).workspace_bytes(use));
    }
    void attend(int panels) {
        const Microbatch microbatch{.sequences = 1, .seq_length = cut_.own_length()};
        const StagePass pass{.ctx = context_,
                             .microbatch = microbatch,
                             .scratch = {.rows = {}, .workspace = workspace_},
                             .context = {.link = link_, .cut = &cut_}};
        gathered(panels).forward(pass, qkv_, {}, heads_, log_sum_exp_);
    }

    Device& device_;
    ContextCut cut_;
    int pieces_;
    TileLink* link_ = nullptr;
    Context context_;
    kernels::AttentionShape shape_;
    DeviceMemory memory_;
    Tensor qkv_, heads_, log_sum_exp_;
    Tensor keys_, arrived_;  ///< (s, key_value_columns)
    Bytes workspace_;
};

}  // namespace

OverlapTiming time_attention(Communicator& world, Device& device, TileLink& link,
                             const OverlapCase& c) {
    return time_team<AttentionTeam>(world, device, link, c);
}

}  // namespace vocabpipe
