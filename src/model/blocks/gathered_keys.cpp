// SPDX-License-Identifier: Apache-2.0
// Memory of a panel has its k | v columns; its rows are those of whole sequences, in their order,
// so that what arrives is where attention reads it. A panel travels as one piece for each segment
// of each sequence.
#include "src/model/blocks/gathered_keys.hpp"

#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/panel_exchange.hpp"
#include "src/model/blocks/row_pieces.hpp"
#include "src/model/views.hpp"

#include <span>

namespace vocabpipe {

namespace {

using kernels::AttentionShape;

constexpr int kSegments = 2;  ///< of a sequence, on every rank

/// A panel of heads of a sequence: what attention computes at once, for each segment of queries.
struct Part {
    int panel;
    int64_t sequence;
};

/// Sizes and memory that forward and backward share.
class GatheredMemory {
public:
    GatheredMemory(const GatheredKeys& of, int ranks, DType dtype)
        : shape_(of.shape),
          panels_(of.panels),
          ranks_(ranks),
          segment_(of.shape.seq_length / kSegments),
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
    /// The number of parts of panels before this one.
    [[nodiscard]] int64_t parts_before(Part part) const {
        return part.panel * shape_.sequences + part.sequence;
    }
    [[nodiscard]] int64_t parts() const { return panels_ * shape_.sequences; }

    /// Memory of the forward; the backward needs this, too.
    void take_keys(Views& memory) { keys_ = memory.take(parts() * seq_length(), columns_, dtype_); }
    void take_gradients(Views& memory) {
        arriving_ = memory.take(parts() * kSegments * ranks_ * segment_, columns_, dtype_);
        sum_ = memory.take(segment_, columns_, dtype_);
        // The first segment of every rank lies in the first half of the sequence.
        gradients_[0] = memory.take(seq_length() / 2, columns_, dtype_);
        gradients_[1] = memory.take(seq_length(), columns_, dtype_);
    }

    /// (s, columns): keys and values of a sequence, in its order.
    [[nodiscard]] Tensor keys(Part part) const {
        return keys_.row_range(parts_before(part) * seq_length(), seq_length());
    }
    /// (segment, columns): gradients from a member for this rank's keys of a segment; those of all
    /// members lie one after the other.
    [[nodiscard]] Tensor arriving(int member, Part part, int segment) const {
        const int64_t before = (parts_before(part) * kSegments + segment) * ranks_ + member;
        return arriving_.row_range(before * segment_, segment_);
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
    /// Calls use(part) in the order in which parts travel.
    template <typename Use>
    void each_part(const Use& use) const {
        for (int panel = 0; panel < panels_; ++panel) {
            for (int64_t sequence = 0; sequence < shape_.sequences; ++sequence) {
                use(Part{panel, sequence});
            }
        }
    }

    [[nodiscard]] Tensor gradients(int segment) const { return gradients_[segment]; }
    [[nodiscard]] Tensor sum() const { return sum_; }

private:
    AttentionShape shape_;
    int panels_;
    int ranks_;
    int64_t segment_;  ///< tokens of a segment
    int64_t columns_;  ///< k | v of a panel
    DType dtype_;
    Tensor keys_;
    Tensor arriving_;
    Tensor sum_;                     ///< (segment, columns)
    Tensor gradients_[kSegments]{};  ///< (s, columns): by a segment's queries, of a sequence in its
                                     ///< order
};

/// One pass over the parts.
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

    /// One segment's queries of a part, for attention.
    struct Queries {
        const GatheringPass& of;
        Part at;
        int segment;

        /// Their keys and values, in the order of the sequence.
        [[nodiscard]] ConstTensor keys_values() const {
            return of.gathering_.keys(at).row_range(0, of.keys_of(segment));
        }
        /// Room for the gradients of these.
        [[nodiscard]] Tensor gradients() const {
            return of.gathering_.gradients(segment).row_range(0, of.keys_of(segment));
        }
        [[nodiscard]] AttentionShape shape() const {
            return of.gathering_.panel_shape(of.keys_of(segment));
        }
        [[nodiscard]] std::span<const int32_t> first_visible() const {
            return of.first_visible(at.sequence, segment);
        }
        /// Theirs in a tensor of the rank's own tokens and heads.
        template <typename Pointer>
        [[nodiscard]] BasicTensor<Pointer> part(const BasicTensor<Pointer>& tokens) const {
            return of.gathering_.of_panel(of.gathering_.own(tokens, at.sequence, segment),
                                          at.panel);
        }
        /// The sinks of their heads.
        [[nodiscard]] HeadSinks part(const HeadSinks& sinks) const {
            if (!sinks) return {};
            return {.scores = of.gathering_.of_panel(sinks.scores, at.panel),
                    .gradients = sinks.gradients ? part(sinks.gradients) : Tensor()};
        }
    };

    [[nodiscard]] const GatheredMemory& gathering() const { return gathering_; }
    [[nodiscard]] Bytes exchanged() const { return exchanged_; }
    [[nodiscard]] Bytes operators() const { return operators_; }
    /// Pieces for every member before those of a part, and all.
    [[nodiscard]] int pieces_before(Part part) const {
        return static_cast<int>(gathering_.parts_before(part)) * kSegments;
    }
    [[nodiscard]] int pieces() const { return static_cast<int>(gathering_.parts()) * kSegments; }

    /// Keys and values of a member's segment.
    [[nodiscard]] Tensor keys(Part part, int member, int segment) const {
        return rows_of(gathering_.keys(part), cut_.segment(member, segment));
    }
    /// Gradients for a member: where its keys were.
    [[nodiscard]] Tensor leaving(Part part, int member, int segment) const {
        return member == cut_.rank() ? gathering_.arriving(member, part, segment)
                                     : keys(part, member, segment);
    }
    /// Copies the rank's keys and values to where the others get them from.
    void pack(ConstTensor qkv) const {
        gathering_.each_part([&](Part part) {
            for (int segment = 0; segment < kSegments; ++segment) {
                const Tensor to = keys(part, cut_.rank(), segment);
                gathering_.each_of_keys(gathering_.own(qkv, part.sequence, segment), part.panel,
                                        [&](ConstTensor from, RowRange columns) {
                                            pass_.op().convert(
                                                pass_.ctx, from,
                                                to.column_range(columns.first, columns.size()));
                                        });
            }
        });
    }
    void exchange_keys(PanelExchange& exchange) const {
        each_piece([&](Part part, int member, int segment) {
            const int self = cut_.rank();
            const Tensor own = keys(part, self, segment);
            const Tensor of_member = keys(part, member, segment);
            exchange.send(member, cut_.sees(member, self, segment) ? own : own.row_range(0, 0));
            exchange.receive(
                member, cut_.sees(self, member, segment) ? of_member : of_member.row_range(0, 0));
        });
    }
    void exchange_gradients(PanelExchange& exchange) const {
        each_piece([&](Part part, int member, int segment) {
            const int self = cut_.rank();
            const Tensor to = leaving(part, member, segment);
            const Tensor from = gathering_.arriving(member, part, segment);
            exchange.send(member, cut_.sees(self, member, segment) ? to : to.row_range(0, 0));
            exchange.receive(member,
                             cut_.sees(member, self, segment) ? from : from.row_range(0, 0));
        });
    }
    /// Calls use(member, segment) for all segments whose keys this rank sees.
    template <typename Use>
    void each_seen(const Use& use) const {
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int segment = 0; segment < kSegments; ++segment) {
                if (cut_.sees(cut_.rank(), member, segment)) use(member, segment);
            }
        }
    }
    /// Keys that a segment of this rank's queries sees: all up to its end.
    [[nodiscard]] int64_t keys_of(int segment) const { return cut_.segment(segment).end; }
    /// Calls attend(queries) for each segment of a part.
    template <typename Attend>
    void each_queries(Part part, const Attend& attend) const {
        for (int segment = 0; segment < kSegments; ++segment) attend(Queries{*this, part, segment});
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
            gathering_.each_part([&](Part part) {
                for (int segment = 0; segment < kSegments; ++segment) use(part, member, segment);
            });
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
    exchange.release(of.pieces());
    const ConstTensor queries = queries_of(qkv, shape);
    of.gathering().each_part([&](Part part) {
        exchange.wait(of.pieces_before(part) + kSegments);
        of.each_queries(part, [&](const GatheringPass::Queries& q) {
            attend_to(pass, q.part(queries), q.keys_values(), q.shape(), q.first_visible(),
                      q.part(sinks), q.part(heads), q.part(log_sum_exp), of.operators());
        });
        pass.ctx.poll();
    });
    exchange.finish();
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
    exchange.release(of.pieces());
    const ConstTensor queries = queries_of(qkv, shape);
    const Tensor dqueries = queries_of(dqkv, shape);
    gathering.each_part([&](Part part) {
        exchange.wait(of.pieces_before(part) + kSegments);
        of.each_queries(part, [&](const GatheringPass::Queries& q) {
            attend_to_backward(pass, q.part(dheads), q.part(queries), q.keys_values(),
                               q.part(heads), q.part(log_sum_exp), q.shape(), q.first_visible(),
                               q.part(sinks), q.part(dqueries), q.gradients(), of.operators());
        });
        // The second segment's queries see all that the first one's see.
        const Tensor both = gathering.gradients(1).row_range(0, of.keys_of(0));
        op.add(pass.ctx, both, gathering.gradients(0).row_range(0, of.keys_of(0)), both);
        of.each_seen([&](int member, int segment) {
            op.convert(pass.ctx, rows_of(gathering.gradients(1), cut.segment(member, segment)),
                       of.leaving(part, member, segment));
        });
        exchange.release(of.pieces() + of.pieces_before(part) + kSegments);
        pass.ctx.poll();
    });
    exchange.finish();
    gathering.each_part([&](Part part) {
        for (int segment = 0; segment < kSegments; ++segment) {
            int members = cut.ranks();  // the first ones see the segment
            while (!cut.sees(members - 1, cut.rank(), segment)) --members;
            const Tensor blocks = gathering.arriving(0, part, segment);
            const ConstTensor partials(blocks.data, members * blocks.rows, blocks.cols,
                                       blocks.dtype);
            op.fold_partials(pass.ctx, partials, members, {}, {}, gathering.sum());
            gathering.each_of_keys(
                gathering.own(dqkv, part.sequence, segment), part.panel,
                [&](Tensor into, RowRange columns) {
                    op.convert(
                        pass.ctx,
                        ConstTensor(gathering.sum()).column_range(columns.first, columns.size()),
                        into);
                });
        }
    });
}

}  // namespace vocabpipe
