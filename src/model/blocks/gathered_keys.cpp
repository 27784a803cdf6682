// SPDX-License-Identifier: Apache-2.0
// Memory of a panel has its k | v columns; its rows are those of the first segment of every
// sequence, then those of the second. A panel travels as two pieces, one for each segment.
#include "src/model/blocks/gathered_keys.hpp"

#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/panel_exchange.hpp"
#include "src/model/blocks/row_pieces.hpp"
#include "src/model/views.hpp"

#include <algorithm>
#include <vector>

namespace vocabpipe {

namespace {

using kernels::AttentionShape;

constexpr int kSegments = 2;  ///< of a sequence, on every rank

/// Sizes and memory that forward and backward share.
class GatheredMemory {
public:
    GatheredMemory(const GatheredKeys& of, int ranks, DType dtype)
        : shape_(of.shape),
          panels_(of.panels),
          ranks_(ranks),
          segment_(of.shape.seq_length / kSegments),
          rows_(of.shape.sequences * segment_),
          columns_(of.shape.key_value_columns() / of.panels),
          dtype_(dtype) {}

    /// The heads of a panel, of one segment's queries that see `keys` keys of one sequence.
    [[nodiscard]] AttentionShape panel_shape(int64_t keys) const {
        AttentionShape shape = shape_;
        shape.sequences = 1;
        shape.seq_length = keys;
        shape.queries = segment_;
        shape.heads /= panels_;
        shape.kv_heads /= panels_;
        return shape;
    }
    [[nodiscard]] int64_t seq_length() const { return shape_.seq_length * ranks_; }

    /// Memory of the forward; the backward needs this, too.
    void take_keys(Views& memory) {
        for (int m = 0; m < ranks_; ++m) {
            keys_.push_back(memory.take(panels_ * kSegments * rows_, columns_, dtype_));
        }
        ordered_ = memory.take(seq_length(), columns_, dtype_);
    }
    void take_gradients(Views& memory) {
        arriving_ = memory.take(panels_ * kSegments * ranks_ * rows_, columns_, dtype_);
        sum_ = memory.take(rows_, columns_, dtype_);
        // The first segment of every rank lies in the first half of the sequence.
        gradients_[0] = memory.take(seq_length() / 2, columns_, dtype_);
        gradients_[1] = memory.take(seq_length(), columns_, dtype_);
    }

    // Rows of a segment of a panel.

    /// Keys and values of a member.
    [[nodiscard]] Tensor keys(int member, int panel, int segment) const {
        return keys_[static_cast<size_t>(member)].row_range(piece(panel, segment) * rows_, rows_);
    }
    /// Gradients from a member for this rank's keys; those of all members lie one after the other.
    [[nodiscard]] Tensor arriving(int member, int panel, int segment) const {
        return arriving_.row_range((piece(panel, segment) * ranks_ + member) * rows_, rows_);
    }
    /// The rows of one sequence among those of a segment.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> of_sequence(BasicTensor<Pointer> rows,
                                                   int64_t sequence) const {
        return rows.row_range(sequence * segment_, segment_);
    }
    /// The rows of a segment of a sequence in a tensor of the rank's own tokens.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> own(BasicTensor<Pointer> tokens, int64_t sequence,
                                           int segment) const {
        return tokens.row_range(sequence * shape_.seq_length + segment * segment_, segment_);
    }
    /// A panel's part of columns of `heads` heads.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> of_panel(BasicTensor<Pointer> columns, int panel) const {
        const int64_t width = columns.cols / panels_;
        return columns.column_range(panel * width, width);
    }
    /// Calls use(columns of qkv, columns of a panel's memory) for k and for v.
    template <typename Pointer, typename Use>
    void each_of_keys(BasicTensor<Pointer> qkv, int panel, const Use& use) const {
        const int64_t width = shape_.key_columns() / panels_;
        use(of_panel(keys_of(qkv, shape_), panel), RowRange{0, width});
        use(of_panel(values_of(qkv, shape_), panel), RowRange{width, columns_});
    }

    [[nodiscard]] const AttentionShape& shape() const { return shape_; }
    [[nodiscard]] int panels() const { return panels_; }
    [[nodiscard]] Tensor ordered() const { return ordered_; }
    [[nodiscard]] Tensor gradients(int segment) const { return gradients_[segment]; }
    [[nodiscard]] Tensor sum() const { return sum_; }
    /// The number of pieces before this one.
    [[nodiscard]] static int64_t piece(int panel, int segment) {
        return panel * kSegments + segment;
    }

private:
    AttentionShape shape_;
    int panels_;
    int ranks_;
    int64_t segment_;  ///< tokens of a segment
    int64_t rows_;     ///< of a segment of all sequences
    int64_t columns_;  ///< k | v of a panel
    DType dtype_;
    std::vector<Tensor> keys_;  ///< [member], of all panels and segments
    Tensor ordered_;            ///< (s, columns): keys of a sequence in its order
    Tensor arriving_;
    Tensor sum_;                     ///< (rows, columns)
    Tensor gradients_[kSegments]{};  ///< (s, columns): by a segment's queries, of a sequence in its
                                     ///< order
};

/// One pass over the panels.
class GatheringPass {
public:
    GatheringPass(const GatheredKeys& of, const StagePass& pass, DType dtype, bool backward)
        : pass_(pass), cut_(*pass.context.cut), gathering_(of, cut_.ranks(), dtype) {
        Views memory(pass.scratch.workspace);
        gathering_.take_keys(memory);
        if (backward) gathering_.take_gradients(memory);
        exchanged_ = pass.scratch.workspace.first(static_cast<size_t>(memory.used()));
        operators_ = pass.scratch.workspace.subspan(static_cast<size_t>(memory.used()));
    }

    /// The heads of a panel of one segment's queries, for attention.
    struct Queries {
        const GatheringPass& of;
        int panel;
        int64_t sequence;
        int segment;

        /// Their keys and values, in the order of the sequence.
        [[nodiscard]] ConstTensor keys_values() const {
            return of.gathering_.ordered().row_range(0, of.keys_of(segment));
        }
        /// Room for the gradients of these.
        [[nodiscard]] Tensor gradients() const {
            return of.gathering_.gradients(segment).row_range(0, of.keys_of(segment));
        }
        [[nodiscard]] AttentionShape shape() const {
            return of.gathering_.panel_shape(of.keys_of(segment));
        }
        [[nodiscard]] std::span<const int32_t> first_visible() const {
            return of.first_visible(sequence, segment);
        }
        /// Theirs in a tensor of the rank's own tokens and heads.
        template <typename Pointer>
        [[nodiscard]] BasicTensor<Pointer> part(const BasicTensor<Pointer>& tokens) const {
            return of.gathering_.of_panel(of.gathering_.own(tokens, sequence, segment), panel);
        }
        /// The sinks of their heads.
        [[nodiscard]] HeadSinks part(const HeadSinks& sinks) const {
            if (!sinks) return {};
            return {.scores = of.gathering_.of_panel(sinks.scores, panel),
                    .gradients = sinks.gradients ? part(sinks.gradients) : Tensor()};
        }
    };

    [[nodiscard]] const GatheredMemory& gathering() const { return gathering_; }
    [[nodiscard]] Bytes exchanged() const { return exchanged_; }
    [[nodiscard]] Bytes operators() const { return operators_; }

    /// Gradients for a member: where its keys were.
    [[nodiscard]] Tensor leaving(int member, int panel, int segment) const {
        return member == cut_.rank() ? gathering_.arriving(member, panel, segment)
                                     : gathering_.keys(member, panel, segment);
    }
    /// Copies the rank's keys and values to where the others get them from.
    void pack(ConstTensor qkv) const {
        each_segment([&](int panel, int64_t sequence, int segment) {
            const Tensor to =
                gathering_.of_sequence(gathering_.keys(cut_.rank(), panel, segment), sequence);
            gathering_.each_of_keys(gathering_.own(qkv, sequence, segment), panel,
                                    [&](ConstTensor from, RowRange columns) {
                                        pass_.op().convert(
                                            pass_.ctx, from,
                                            to.column_range(columns.first, columns.size()));
                                    });
        });
    }
    void exchange_keys(PanelExchange& exchange) const {
        each_piece([&](int member, int panel, int segment) {
            const int self = cut_.rank();
            const Tensor own = gathering_.keys(self, panel, segment);
            const Tensor of_member = gathering_.keys(member, panel, segment);
            exchange.send(member, cut_.sees(member, self, segment) ? own : own.row_range(0, 0));
            exchange.receive(
                member, cut_.sees(self, member, segment) ? of_member : of_member.row_range(0, 0));
        });
    }
    void exchange_gradients(PanelExchange& exchange) const {
        each_piece([&](int member, int panel, int segment) {
            const int self = cut_.rank();
            const Tensor to = leaving(member, panel, segment);
            const Tensor from = gathering_.arriving(member, panel, segment);
            exchange.send(member, cut_.sees(self, member, segment) ? to : to.row_range(0, 0));
            exchange.receive(member,
                             cut_.sees(member, self, segment) ? from : from.row_range(0, 0));
        });
    }
    /// Calls use(rows of a member's segment in its memory, their place in the sequence) for all
    /// segments whose keys this rank sees. `memory`: GatheredMemory::keys or its like.
    template <typename Memory, typename Use>
    void each_seen(int panel, int64_t sequence, const Memory& memory, const Use& use) const {
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int segment = 0; segment < kSegments; ++segment) {
                if (!cut_.sees(cut_.rank(), member, segment)) continue;
                use(gathering_.of_sequence(memory(member, panel, segment), sequence),
                    cut_.segment(member, segment));
            }
        }
    }
    /// Puts a panel's keys of a sequence into the order of the sequence.
    void order_keys(int panel, int64_t sequence) const {
        const auto keys = [&](int member, int of_panel, int segment) {
            return gathering_.keys(member, of_panel, segment);
        };
        each_seen(panel, sequence, keys, [&](ConstTensor from, RowRange place) {
            pass_.op().convert(pass_.ctx, from, rows_of(gathering_.ordered(), place));
        });
    }
    /// Keys that a segment of this rank's queries sees: all up to its end.
    [[nodiscard]] int64_t keys_of(int segment) const { return cut_.segment(segment).end; }
    /// Puts a panel's keys of a sequence in order, and calls attend(queries) for each segment.
    template <typename Attend>
    void each_queries(int panel, int64_t sequence, const Attend& attend) const {
        order_keys(panel, sequence);
        for (int segment = 0; segment < kSegments; ++segment) {
            attend(Queries{*this, panel, sequence, segment});
        }
    }

    template <typename Use>
    void each_segment(const Use& use) const {
        for (int panel = 0; panel < gathering_.panels(); ++panel) {
            for (int64_t sequence = 0; sequence < gathering_.shape().sequences; ++sequence) {
                for (int segment = 0; segment < kSegments; ++segment) use(panel, sequence, segment);
            }
        }
    }

private:
    [[nodiscard]] std::span<const int32_t> first_visible(int64_t sequence, int segment) const {
        const auto all = pass_.microbatch.first_visible;
        if (all.empty()) return all;
        const RowRange own = cut_.own_rows(sequence, segment);
        return all.subspan(static_cast<size_t>(own.first), static_cast<size_t>(own.size()));
    }
    template <typename Use>
    void each_piece(const Use& use) const {
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int panel = 0; panel < gathering_.panels(); ++panel) {
                for (int segment = 0; segment < kSegments; ++segment) use(member, panel, segment);
            }
        }
    }

    const StagePass& pass_;
    const ContextCut& cut_;
    GatheredMemory gathering_;
    Bytes exchanged_;  ///< memory of the exchange
    Bytes operators_;  ///< the rest of the workspace
};

}  // namespace

int64_t GatheredKeys::workspace_bytes(const ScratchFor& use) const {
    GatheredMemory gathering(*this, use.context, use.dtype);
    Views memory;
    gathering.take_keys(memory);
    gathering.take_gradients(memory);
    return memory.used() +
           use.operators.attention_workspace_bytes(gathering.panel_shape(gathering.seq_length()),
                                                   use.dtype, use.threads);
}

void GatheredKeys::forward(const StagePass& pass, ConstTensor qkv, const HeadSinks& sinks,
                           Tensor heads, Tensor log_sum_exp) const {
    const GatheringPass of(*this, pass, qkv.dtype, false);
    PanelExchange exchange(*pass.context.link, of.exchanged());
    of.exchange_keys(exchange);
    exchange.start("all-gather of keys and values");
    of.pack(qkv);
    exchange.release(panels * kSegments);
    const ConstTensor queries = qkv.column_range(0, shape.query_columns());
    for (int panel = 0; panel < panels; ++panel) {
        exchange.wait((panel + 1) * kSegments);
        for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
            of.each_queries(panel, sequence, [&](const GatheringPass::Queries& q) {
                attend_to(pass, q.part(queries), q.keys_values(), q.shape(), q.first_visible(),
                          q.part(sinks), q.part(heads), q.part(log_sum_exp), of.operators());
            });
        }
        pass.ctx.poll();
    }
    exchange.finish();
}

void GatheredKeys::sum_sinks(const StagePass& pass, ConstTensor gradients, Tensor dsinks) const {
    pass.op().column_sums(pass.ctx, gradients, dsinks, pass.weight_gradients.accumulate);
}

void GatheredKeys::backward(const StagePass& pass, ConstTensor dheads, ConstTensor qkv,
                            const HeadSinks& sinks, ConstTensor heads, ConstTensor log_sum_exp,
                            Tensor dqkv) const {
    const kernels::Operators& op = pass.op();
    const GatheringPass of(*this, pass, qkv.dtype, true);
    const GatheredMemory& gathering = of.gathering();
    const ContextCut& cut = *pass.context.cut;
    PanelExchange exchange(*pass.context.link, of.exchanged());
    of.exchange_keys(exchange);
    of.exchange_gradients(exchange);
    exchange.start("keys and values, and their gradients");
    of.pack(qkv);
    const int all_keys = panels * kSegments;
    exchange.release(all_keys);
    const ConstTensor queries = qkv.column_range(0, shape.query_columns());
    const Tensor dqueries = dqkv.column_range(0, shape.query_columns());
    const auto to = [&](int member, int panel, int segment) {
        return of.leaving(member, panel, segment);
    };
    for (int panel = 0; panel < panels; ++panel) {
        exchange.wait((panel + 1) * kSegments);
        for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
            of.each_queries(panel, sequence, [&](const GatheringPass::Queries& q) {
                attend_to_backward(pass, q.part(dheads), q.part(queries), q.keys_values(),
                                   q.part(heads), q.part(log_sum_exp), q.shape(), q.first_visible(),
                                   q.part(sinks), q.part(dqueries), q.gradients(), of.operators());
            });
            // The second segment's queries see all that the first one's see.
            const Tensor both = gathering.gradients(1).row_range(0, of.keys_of(0));
            op.add(pass.ctx, both, gathering.gradients(0).row_range(0, of.keys_of(0)), both);
            of.each_seen(panel, sequence, to, [&](Tensor leaving, RowRange place) {
                op.convert(pass.ctx, rows_of(gathering.gradients(1), place), leaving);
            });
        }
        exchange.release(all_keys + (panel + 1) * kSegments);
        pass.ctx.poll();
    }
    exchange.finish();
    for (int panel = 0; panel < panels; ++panel) {
        for (int segment = 0; segment < kSegments; ++segment) {
            int members = cut.ranks();  // the first ones see the segment
            while (!cut.sees(members - 1, cut.rank(), segment)) --members;
            const Tensor blocks = gathering.arriving(0, panel, segment);
            const ConstTensor partials(blocks.data, members * blocks.rows, blocks.cols,
                                       blocks.dtype);
            op.fold_partials(pass.ctx, partials, members, {}, {}, gathering.sum());
            for (int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
                const ConstTensor sum =
                    gathering.of_sequence(ConstTensor(gathering.sum()), sequence);
                gathering.each_of_keys(
                    gathering.own(dqkv, sequence, segment), panel,
                    [&](Tensor into, RowRange columns) {
                        op.convert(pass.ctx, sum.column_range(columns.first, columns.size()), into);
                    });
            }
        }
    }
}

}  // namespace vocabpipe
