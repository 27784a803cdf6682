// SPDX-License-Identifier: Apache-2.0
// A panel for a member holds the sender's tokens of some of the member's heads. What belongs to a
// head lies in groups of columns: q | k | v on the way there, and what the backward also needs.
#include "src/model/blocks/exchanged_heads.hpp"

#include "src/model/blocks/heads.hpp"
#include "src/model/blocks/panel_exchange.hpp"
#include "src/model/blocks/row_pieces.hpp"
#include "src/model/blocks/whole_exchange.hpp"
#include "src/model/views.hpp"

#include <array>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

using kernels::AttentionShape;

/// Panels between this rank and all others, of some groups of columns.
struct Side {
    std::vector<int64_t> columns;  ///< of a panel, group by group
    std::vector<Tensor> leaving;   ///< [member], panels one after the other
    std::vector<Tensor> arriving;  ///< [member]; of this rank the same memory
    Tensor ordered;                ///< (s, all columns): a panel of a sequence, in its order
};

/// Sizes, memory and steps that forward and backward share.
class HeadExchange {
public:
    HeadExchange(const ExchangedHeads& of, int ranks, int self, DType dtype)
        : shape_(of.shape), panels_(of.panels), ranks_(ranks), self_(self), dtype_(dtype) {}

    /// The heads of a panel, of one whole sequence.
    [[nodiscard]] AttentionShape panel_shape() const {
        AttentionShape shape = shape_;
        shape.sequences = 1;
        shape.seq_length *= ranks_;
        shape.heads /= ranks_ * panels_;
        shape.kv_heads /= ranks_ * panels_;
        return shape;
    }
    /// (s, columns of q, k, v and, in a backward, of out and its gradient).
    [[nodiscard]] Side inputs(Views& memory, bool backward) const {
        const AttentionShape of = panel_shape();
        std::vector<int64_t> columns{of.query_columns(), of.key_columns(), of.value_columns()};
        if (backward) columns.insert(columns.end(), 2, of.output_columns());
        return side(memory, std::move(columns));
    }
    [[nodiscard]] Side results(Views& memory, bool backward) const {
        const AttentionShape of = panel_shape();
        if (!backward) return side(memory, {of.output_columns()});
        return side(memory, {of.query_columns(), of.key_columns(), of.value_columns()});
    }
    /// Room for first_visible of all members' tokens, and of whole sequences in their order.
    [[nodiscard]] std::array<Tensor, 2> starts(Views& memory) const {
        return {memory.take(ranks_, tokens(), DType::fp32),
                memory.take(1, ranks_ * tokens(), DType::fp32)};
    }

    /// N, the rank's tokens.
    [[nodiscard]] int64_t tokens() const { return shape_.tokens(); }
    /// Rows of a panel in memory of all panels.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> panel(const BasicTensor<Pointer>& all, int panel) const {
        return all.row_range(panel * tokens(), tokens());
    }
    /// Columns of a member's panel, among those of all heads of a kind.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> of_heads(const BasicTensor<Pointer>& all, int member,
                                                int panel) const {
        const int64_t width = all.cols / (ranks_ * panels_);
        return all.column_range((member * panels_ + panel) * width, width);
    }

private:
    [[nodiscard]] Side side(Views& memory, std::vector<int64_t> columns) const {
        Side side{.columns = std::move(columns), .leaving = {}, .arriving = {}, .ordered = {}};
        int64_t all = 0;
        for (const int64_t some : side.columns) all += some;
        for (int member = 0; member < ranks_; ++member) {
            side.leaving.push_back(memory.take(panels_ * tokens(), all, dtype_));
            side.arriving.push_back(member == self_ ? side.leaving.back()
                                                    : memory.take(panels_ * tokens(), all, dtype_));
        }
        side.ordered = memory.take(panel_shape().seq_length, all, dtype_);
        return side;
    }

    AttentionShape shape_;
    int panels_;
    int ranks_;
    int self_;
    DType dtype_;
};

/// Calls use(columns of a group) for each group, from left to right.
template <typename Use>
void each_group(const Side& side, const Use& use) {
    int64_t first = 0;
    for (size_t group = 0; group < side.columns.size(); ++group) {
        use(group, RowRange{first, first + side.columns[group]});
        first += side.columns[group];
    }
}

template <typename Pointer>
BasicTensor<Pointer> columns_of(const BasicTensor<Pointer>& tensor, RowRange columns) {
    return tensor.column_range(columns.first, columns.size());
}

/// Columns of q, k and v.
template <typename Pointer>
std::array<BasicTensor<Pointer>, 3> parts_of(const BasicTensor<Pointer>& qkv,
                                             const AttentionShape& shape) {
    return {queries_of(qkv, shape), keys_of(qkv, shape), values_of(qkv, shape)};
}

/// One pass over the panels.
class HeadPass {
public:
    HeadPass(const ExchangedHeads& of, const StagePass& pass, DType dtype, bool backward)
        : pass_(pass),
          cut_(*pass.context.cut),
          panels_(of.panels),
          sequences_(of.shape.sequences),
          sizes_(of, cut_.ranks(), cut_.rank(), dtype) {
        Views memory(pass.scratch.workspace);
        inputs_ = sizes_.inputs(memory, backward);
        results_ = sizes_.results(memory, backward);
        if (!pass.microbatch.first_visible.empty()) gather_starts(memory);
        exchanged_ = pass.scratch.workspace.first(static_cast<size_t>(memory.used()));
        operators_ = pass.scratch.workspace.subspan(static_cast<size_t>(memory.used()));
    }

    /// Exchanges `from`, tensors of the rank's tokens and all heads, one for each group of inputs;
    /// calls attend(panel shape, first_visible, row of the first token, panel) for every sequence
    /// of a panel, which reads input() and makes result(); exchanges the results into `into`,
    /// likewise.
    template <typename Attend>
    void run(std::string_view what, std::span<const ConstTensor> from, std::span<const Tensor> into,
             const Attend& attend) const {
        PanelExchange exchange(*pass_.context.link, exchanged_);
        for (const Side* side : {&inputs_, &results_}) add(exchange, *side);
        exchange.start(what);
        for (int panel = 0; panel < panels_; ++panel) {
            each_heads(inputs_, inputs_.leaving, panel, from,
                       [&](ConstTensor heads, Tensor packed) { convert(heads, packed); });
            exchange.release(panel + 1);
        }
        for (int panel = 0; panel < panels_; ++panel) {
            exchange.wait(panel + 1);
            for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
                each_segment(sequence, [&](int member, RowRange own, RowRange place) {
                    convert(rows_of(panel_of(inputs_.arriving, member, panel), own),
                            rows_of(inputs_.ordered, place));
                });
                attend(panel, sequence);
                each_segment(sequence, [&](int member, RowRange own, RowRange place) {
                    convert(rows_of(results_.ordered, place),
                            rows_of(panel_of(results_.leaving, member, panel), own));
                });
            }
            exchange.release(panels_ + panel + 1);
            pass_.ctx.poll();
        }
        exchange.finish();
        for (int panel = 0; panel < panels_; ++panel) {
            each_heads(results_, results_.arriving, panel, into,
                       [&](Tensor heads, ConstTensor packed) { convert(packed, heads); });
        }
    }

    /// A group of the panel that is attended to.
    [[nodiscard]] ConstTensor input(size_t group, size_t groups = 1) const {
        return ordered(inputs_, group, groups);
    }
    [[nodiscard]] Tensor result(size_t group, size_t groups = 1) const {
        return ordered(results_, group, groups);
    }
    [[nodiscard]] AttentionShape shape() const { return sizes_.panel_shape(); }
    [[nodiscard]] std::span<const int32_t> first_visible(int64_t sequence) const {
        if (!starts_) return {};
        const auto length = static_cast<size_t>(cut_.seq_length());
        return std::span(static_cast<const int32_t*>(starts_.data), starts_.size())
            .subspan(static_cast<size_t>(sequence) * length, length);
    }
    /// A panel's part of the sinks for a sequence.
    [[nodiscard]] HeadSinks part(const HeadSinks& sinks, int panel, int64_t sequence) const {
        if (!sinks) return {};
        return {.scores = sizes_.of_heads(sinks.scores, cut_.rank(), panel),
                .gradients =
                    sinks.gradients ? log_sum_exp(sinks.gradients, panel, sequence) : Tensor()};
    }
    /// A panel's part of log_sum_exp, or of what has its shape, for a sequence.
    template <typename Pointer>
    [[nodiscard]] BasicTensor<Pointer> log_sum_exp(const BasicTensor<Pointer>& own, int panel,
                                                   int64_t sequence) const {
        const int64_t heads = own.cols / cut_.ranks();
        const BasicTensor<Pointer> all(own.data, own.rows * cut_.ranks(), heads, own.dtype);
        return all.row_range(sequence * cut_.seq_length(), cut_.seq_length())
            .column_range(panel * (heads / panels_), heads / panels_);
    }
    [[nodiscard]] Bytes operators() const { return operators_; }

private:
    void convert(ConstTensor from, Tensor to) const { pass_.op().convert(pass_.ctx, from, to); }

    void add(PanelExchange& exchange, const Side& side) const {
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int panel = 0; panel < panels_; ++panel) {
                exchange.send(member, panel_of(side.leaving, member, panel));
                exchange.receive(member, panel_of(side.arriving, member, panel));
            }
        }
    }
    [[nodiscard]] Tensor panel_of(const std::vector<Tensor>& all, int member, int panel) const {
        return sizes_.panel(all[static_cast<size_t>(member)], panel);
    }
    /// `count` neighbouring groups of the ordered panel.
    [[nodiscard]] static Tensor ordered(const Side& side, size_t group, size_t count) {
        int64_t first = 0;
        int64_t end = 0;
        each_group(side, [&](size_t g, RowRange columns) {
            if (g == group) first = columns.first;
            if (g < group + count) end = columns.end;
        });
        return side.ordered.column_range(first, end - first);
    }
    /// Calls use(columns of a member's heads in `all`, the same in the panel) for every group.
    template <typename AnyTensor, typename Use>
    void each_heads(const Side& side, const std::vector<Tensor>& panels, int panel,
                    std::span<const AnyTensor> all, const Use& use) const {
        for (int member = 0; member < cut_.ranks(); ++member) {
            const Tensor packed = panel_of(panels, member, panel);
            each_group(side, [&](size_t group, RowRange columns) {
                use(sizes_.of_heads(all[group], member, panel), columns_of(packed, columns));
            });
        }
    }
    /// Calls use(member, rows of a segment among its own tokens, their place in the sequence) for
    /// the segments of all ranks.
    template <typename Use>
    void each_segment(int64_t sequence, const Use& use) const {
        for (int member = 0; member < cut_.ranks(); ++member) {
            for (int n = 0; n < cut_.segments(); ++n) {
                use(member, cut_.own_rows(sequence, n), cut_.segment(member, n));
            }
        }
    }
    /// Every rank gets first_visible of all tokens: another's documents decide what this one's
    /// heads see.
    void gather_starts(Views& memory) {
        const auto [by_member, ordered_starts] = sizes_.starts(memory);
        const auto of = [&, all = by_member](int member) { return all.row_range(member, 1); };
        exchange_whole(*pass_.context.link, "starts of documents", of, [&] {
            pass_.op().copy(pass_.ctx, std::as_bytes(pass_.microbatch.first_visible),
                            bytes_of<std::byte>(of(cut_.rank())));
        });
        for (int64_t sequence = 0; sequence < sequences_; ++sequence) {
            const Tensor whole =
                ordered_starts.column_range(sequence * cut_.seq_length(), cut_.seq_length());
            each_segment(sequence, [&](int member, RowRange own, RowRange place) {
                pass_.op().copy(pass_.ctx, bytes_of<const std::byte>(columns_of(of(member), own)),
                                bytes_of<std::byte>(columns_of(whole, place)));
            });
        }
        starts_ = ordered_starts;
    }

    const StagePass& pass_;
    const ContextCut& cut_;
    int panels_;
    int64_t sequences_;
    HeadExchange sizes_;
    Side inputs_, results_;
    Tensor starts_;  ///< first_visible of whole sequences; empty: none
    Bytes exchanged_;
    Bytes operators_;  ///< the rest of the workspace
};

}  // namespace

int64_t ExchangedHeads::workspace_bytes(const ScratchFor& use) const {
    const HeadExchange exchange(*this, use.context, 0, use.dtype);
    Views memory;
    (void)exchange.inputs(memory, true);
    (void)exchange.results(memory, true);
    (void)exchange.starts(memory);
    return memory.used() +
           use.operators.attention_workspace_bytes(exchange.panel_shape(), use.dtype, use.threads);
}

void ExchangedHeads::forward(const StagePass& pass, ConstTensor qkv, const HeadSinks& sinks,
                             Tensor heads, Tensor log_sum_exp) const {
    const HeadPass of(*this, pass, qkv.dtype, false);
    const auto from = parts_of(qkv, shape);
    of.run("heads of all tokens", std::span<const ConstTensor>(from),
           std::span<const Tensor>(&heads, 1), [&](int panel, int64_t sequence) {
               attend_to(pass, of.input(0), of.input(1, 2), of.shape(), of.first_visible(sequence),
                         of.part(sinks, panel, sequence), of.result(0),
                         of.log_sum_exp(log_sum_exp, panel, sequence), of.operators());
           });
}

void ExchangedHeads::backward(const StagePass& pass, ConstTensor dheads, ConstTensor qkv,
                              const HeadSinks& sinks, ConstTensor heads, ConstTensor log_sum_exp,
                              Tensor dqkv) const {
    const HeadPass of(*this, pass, qkv.dtype, true);
    const auto [queries, keys, values] = parts_of(qkv, shape);
    const std::array from{queries, keys, values, heads, dheads};
    const auto into = parts_of(dqkv, shape);
    of.run("heads of all tokens, and their gradients", std::span<const ConstTensor>(from),
           std::span<const Tensor>(into), [&](int panel, int64_t sequence) {
               attend_to_backward(pass, of.input(4), of.input(0), of.input(1, 2), of.input(3),
                                  of.log_sum_exp(log_sum_exp, panel, sequence), of.shape(),
                                  of.first_visible(sequence), of.part(sinks, panel, sequence),
                                  of.result(0), of.result(1, 2), of.operators());
           });
}

// Other heads' sinks are summed by their ranks; gradients are added up over all.
void ExchangedHeads::sum_sinks(const StagePass& pass, ConstTensor gradients, Tensor dsinks) {
    const int ranks = pass.context.cut->ranks();
    const int64_t own = gradients.cols / ranks;
    const bool accumulate = pass.weight_gradients.accumulate;
    if (!accumulate) pass.op().set_zero(pass.ctx, bytes_of<std::byte>(dsinks));
    pass.op().column_sums(pass.ctx,
                          ConstTensor(gradients.data, gradients.rows * ranks, own, gradients.dtype),
                          dsinks.column_range(pass.context.cut->rank() * own, own), accumulate);
}

}  // namespace vocabpipe
