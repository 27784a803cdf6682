// SPDX-License-Identifier: Apache-2.0
// Attention of ranks that share sequences, in both forms of exchange, against the operator on whole
// sequences: random heads, windows, documents and panels.
#include "src/model/blocks/exchanged_heads.hpp"
#include "src/model/blocks/gathered_keys.hpp"
#include "src/model/blocks/panel_exchange.hpp"
#include "tests/model/teams_of_threads.hpp"
#include "tests/support/full_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <vector>

namespace vocabpipe::testing {
namespace {

using kernels::AttentionShape;

/// Counts the bytes that this rank sends to others.
class CountingLink final : public TileLink {
public:
    explicit CountingLink(TileLink& link) : link_(link) {}
    [[nodiscard]] int rank() const override { return link_.rank(); }
    [[nodiscard]] int size() const override { return link_.size(); }
    [[nodiscard]] Operation all_to_all(std::span<const Outgoing> send,
                                       std::span<const Incoming> receive, Name name,
                                       Order order) override {
        for (size_t m = 0; m < send.size(); ++m) {
            if (static_cast<int>(m) == rank()) continue;
            for (size_t i = 0; i < send[m].ends.size(); ++i) {
                const int64_t before = i == 0 ? 0 : send[m].ends[i - 1];
                sent += send[m].ends[i] - (send[m].begins.empty() ? before : send[m].begins[i]);
            }
        }
        return link_.all_to_all(send, receive, name, order);
    }
    void poll() override { link_.poll(); }

    int64_t sent = 0;

private:
    TileLink& link_;
};

struct Attended {
    int ranks = 2;
    int panels = 1;
    AttentionShape shape;  ///< of whole sequences
    bool documents = false;
    bool sinks = false;
    DType dtype = DType::fp32;

    friend std::ostream& operator<<(std::ostream& out, const Attended& c) {
        return out << "C=" << c.ranks << " panels " << c.panels << " sequences "
                   << c.shape.sequences << " s=" << c.shape.seq_length << " d=" << c.shape.head_size
                   << " values " << c.shape.value_size() << " a=" << c.shape.heads
                   << " g=" << c.shape.kv_heads << " window " << c.shape.window << " softcap "
                   << c.shape.softcap << " documents " << c.documents << " sinks " << c.sinks
                   << " bytes " << size_of(c.dtype);
    }
};

Attended random_case(std::mt19937& random, bool multiple_of_64, bool heads_divide) {
    const auto from = [&random](int64_t first, int64_t last) {
        return std::uniform_int_distribution<int64_t>(first, last)(random);
    };
    Attended c;
    c.ranks = static_cast<int>(from(2, 4));
    const int64_t segment = multiple_of_64 ? 64 : from(1, 40);
    c.shape = {.sequences = from(1, 3),
               .seq_length = 2 * c.ranks * segment,
               .head_size = 4 * from(1, 5),
               .kv_heads = heads_divide ? c.ranks * from(1, 2) : from(1, 6)};
    c.shape.heads = c.shape.kv_heads * from(1, 3);
    if (from(0, 2) == 0) c.shape.value_head_size = 4 * from(1, 5);
    if (from(0, 2) == 0) c.shape.window = from(1, c.shape.seq_length);
    if (from(0, 3) == 0) c.shape.softcap = 2;
    c.documents = from(0, 1) == 1;
    c.sinks = from(0, 1) == 1;
    const int64_t heads = heads_divide ? c.shape.kv_heads / c.ranks : c.shape.kv_heads;
    c.panels = panels_of(heads, static_cast<int>(from(1, 4)));
    return c;
}

/// A dense tensor with its memory.
struct Values {
    Poisoned memory;
    Tensor view;
    Values(Device& device, int64_t rows, int64_t cols, DType dtype)
        : memory(device, rows * cols * size_of(dtype)),
          view(memory.bytes().data(), rows, cols, dtype) {}
};

/// What attention of a rank reads and makes.
struct Rows {
    std::unique_ptr<Device> device = make_host_device();
    Values qkv, dheads, heads, log_sum_exp, dqkv;
    Values scores, dscores, dsinks;  ///< of sinks
    std::vector<int32_t> first_visible;

    Rows(const AttentionShape& shape, DType dtype)
        : qkv(*device, shape.tokens(), shape.qkv_columns(), dtype),
          dheads(*device, shape.tokens(), shape.output_columns(), dtype),
          heads(*device, shape.tokens(), shape.output_columns(), dtype),
          log_sum_exp(*device, shape.tokens(), shape.heads, DType::fp32),
          dqkv(*device, shape.tokens(), shape.qkv_columns(), dtype),
          scores(*device, 1, shape.heads, dtype),
          dscores(*device, shape.tokens(), shape.heads, DType::fp32),
          dsinks(*device, 1, shape.heads, DType::fp32) {}

    [[nodiscard]] HeadSinks sinks(const Attended& c) const {
        if (!c.sinks) return {};
        return {.scores = scores.view, .gradients = dscores.view};
    }
};

/// The operator on whole sequences.
std::unique_ptr<Rows> on_one_rank(const Attended& c, unsigned seed) {
    auto rows = std::make_unique<Rows>(c.shape, c.dtype);
    write(rows->qkv.view, random_values(rows->qkv.view.size(), seed, 1));
    write(rows->dheads.view, random_values(rows->dheads.view.size(), seed + 1, 1));
    std::mt19937 random(seed + 2);
    for (int64_t n = 0; c.documents && n < c.shape.tokens(); ++n) {
        const auto token = static_cast<int32_t>(n % c.shape.seq_length);
        const bool begins = token == 0 || random() % 9 == 0;
        rows->first_visible.push_back(begins ? token : rows->first_visible.back());
    }
    const kernels::Operators& op = rows->device->operators();
    Context ctx({.threads = 1, .poll = {}, .operators = &op});
    const Poisoned workspace(*rows->device, op.attention_workspace_bytes(c.shape, c.dtype, 1));
    const auto q = [&](Tensor all) { return all.column_range(0, c.shape.query_columns()); };
    const auto kv = [&](Tensor all) {
        return all.column_range(c.shape.query_columns(), c.shape.key_value_columns());
    };
    op.causal_attention_forward(ctx, q(rows->qkv.view), kv(rows->qkv.view), c.shape,
                                rows->first_visible, rows->heads.view, rows->log_sum_exp.view,
                                workspace.bytes());
    write(rows->scores.view, random_values(c.shape.heads, seed + 3, 2));
    if (c.sinks) {
        op.attention_sinks_forward(ctx, rows->scores.view, c.shape, rows->heads.view,
                                   rows->log_sum_exp.view);
        op.attention_sinks_backward(ctx, rows->scores.view, rows->dheads.view, rows->heads.view,
                                    rows->log_sum_exp.view, c.shape, rows->dscores.view);
        op.column_sums(ctx, rows->dscores.view, rows->dsinks.view, false);
    }
    op.causal_attention_backward(ctx, rows->dheads.view, q(rows->qkv.view), kv(rows->qkv.view),
                                 rows->heads.view, rows->log_sum_exp.view, c.shape,
                                 rows->first_visible, q(rows->dqkv.view), kv(rows->dqkv.view),
                                 workspace.bytes());
    return rows;
}

/// The row of whole sequences that is row `row` of a context rank, by the definition of segments.
int64_t whole_row(const Attended& c, int rank, int64_t row) {
    const int64_t own = c.shape.seq_length / c.ranks, segment = own / 2;
    const int64_t sequence = row / own, token = row % own;
    const int64_t number = token < segment ? rank : 2 * c.ranks - 1 - rank;
    return sequence * c.shape.seq_length + number * segment + token % segment;
}

/// Gradients of keys and values as context ranks add them up: each rank those of its second
/// segment's queries and of its first one's, and the owner those of all ranks, in their order.
/// fp32.
Values keys_gradients_by_rank(const Attended& c, const Rows& whole) {
    const int64_t s = c.shape.seq_length, segment = s / (2 * c.ranks);
    const int64_t columns = c.shape.key_value_columns();
    Device& device = *whole.device;
    const kernels::Operators& op = device.operators();
    Context ctx({.threads = 1, .poll = {}, .operators = &op});
    const Poisoned workspace(device, op.attention_workspace_bytes(c.shape, c.dtype, 1));
    Values sum(device, c.shape.tokens(), columns, DType::fp32);
    std::vector<bool> begun(static_cast<size_t>(c.shape.tokens()), false);
    for (int64_t sequence = 0; sequence < c.shape.sequences; ++sequence) {
        for (int rank = 0; rank < c.ranks; ++rank) {
            Values own(device, s, columns, DType::fp32);
            std::ranges::fill(own.memory.bytes(), std::byte{0});
            int64_t keys = 0;
            for (const int64_t number : {2 * int64_t{c.ranks} - 1 - rank, int64_t{rank}}) {
                AttentionShape shape = c.shape;
                shape.sequences = 1;
                shape.seq_length = (number + 1) * segment;
                shape.queries = segment;
                keys = std::max(keys, shape.seq_length);
                const auto queries = [&](const Values& all, int64_t count) {
                    return all.view.row_range(sequence * s + number * segment, segment)
                        .column_range(0, count);
                };
                const int64_t q = c.shape.query_columns(), out = c.shape.output_columns();
                const Tensor kv = whole.qkv.view.row_range(sequence * s, shape.seq_length)
                                      .column_range(q, columns);
                std::span<const int32_t> first = whole.first_visible;
                if (!first.empty()) {
                    first = first.subspan(static_cast<size_t>(sequence * s + number * segment),
                                          static_cast<size_t>(segment));
                }
                Values dq(device, segment, q, DType::fp32);
                Values dkv(device, shape.seq_length, columns, DType::fp32);
                op.causal_attention_backward(ctx, queries(whole.dheads, out), queries(whole.qkv, q),
                                             kv, queries(whole.heads, out),
                                             queries(whole.log_sum_exp, c.shape.heads), shape,
                                             first, dq.view, dkv.view, workspace.bytes());
                const Tensor part = own.view.row_range(0, shape.seq_length);
                op.add(ctx, part, dkv.view, part);
            }
            const int64_t begin = sequence * s;
            for (int64_t row = 0; row < keys; ++row) {
                const Tensor to = sum.view.row_range(begin + row, 1);
                const Tensor from = own.view.row_range(row, 1);
                if (begun[static_cast<size_t>(begin + row)]) {
                    op.add(ctx, to, from, to);
                } else {
                    op.convert(ctx, from, to);
                }
                begun[static_cast<size_t>(begin + row)] = true;
            }
        }
    }
    return sum;
}

/// Bytes that ranks sent in the forward and in the backward.
struct Sent {
    std::vector<int64_t> forward, backward;
};

/// The bits of a rank's rows in those of whole sequences; columns of a range.
bool same_bits(const Attended& c, int rank, ConstTensor own, ConstTensor whole, RowRange columns) {
    const int64_t bytes = size_of(own.dtype);
    const auto* const a = static_cast<const std::byte*>(own.data);
    const auto* const b = static_cast<const std::byte*>(whole.data);
    for (int64_t row = 0; row < own.rows; ++row) {
        const int64_t from = (row * own.cols + columns.first) * bytes;
        const int64_t to = (whole_row(c, rank, row) * whole.cols + columns.first) * bytes;
        if (std::memcmp(a + from, b + to, static_cast<size_t>(columns.size() * bytes)) != 0) {
            return false;
        }
    }
    return true;
}

/// The largest difference from a row of whole sequences, relative to the largest value.
double difference(const Attended& c, int rank, ConstTensor own, ConstTensor whole) {
    double largest = 0, apart = 0;
    for (int64_t row = 0; row < own.rows; ++row) {
        for (int64_t col = 0; col < own.cols; ++col) {
            const double expected = kernels::reference::get(whole, whole_row(c, rank, row), col);
            const double found = kernels::reference::get(own, row, col);
            if (std::isnan(found)) return found;
            apart = std::max(apart, std::abs(found - expected));
            largest = std::max(largest, std::abs(expected));
        }
    }
    return apart / largest;
}

/// Gradients of sinks: of each rank, summed twice, and of whole sequences.
void expect_sums_of_ranks(const std::vector<std::vector<float>>& by_rank,
                          const std::vector<float>& whole, DType dtype) {
    double largest = 0;
    for (const float one : whole) largest = std::max(largest, std::abs(static_cast<double>(one)));
    for (size_t head = 0; head < whole.size(); ++head) {
        double sum = 0;
        for (const std::vector<float>& own : by_rank) sum += static_cast<double>(own[head]);
        EXPECT_NEAR(sum, 2 * static_cast<double>(whole[head]),
                    (dtype == DType::fp32 ? 2e-5 : 4e-2) * largest)
            << "sink of head " << head;
    }
}

std::vector<float> floats_of(const Values& values) {
    const auto* const first = static_cast<const float*>(values.view.data);
    return {first, first + values.view.size()};
}

/// Runs a block on a team; check(rank, rows of the rank) at the end. Gradients of sinks of all
/// ranks add up to those of whole sequences.
template <typename Block, typename Check>
Sent on_context_team(const Attended& c, const Rows& whole, const Check& check) {
    Sent sent{std::vector<int64_t>(static_cast<size_t>(c.ranks)),
              std::vector<int64_t>(static_cast<size_t>(c.ranks))};
    AttentionShape shape = c.shape;
    shape.seq_length /= c.ranks;
    const Block block{shape, c.panels};
    std::vector<std::vector<float>> dsinks(static_cast<size_t>(c.ranks));
    on_linked_team(c.ranks, [&](int rank, TileLink* link) {
        Rows rows(shape, c.dtype);
        for (const auto& [own, all] :
             {std::pair(&rows.qkv, &whole.qkv), std::pair(&rows.dheads, &whole.dheads)}) {
            const int64_t bytes = own->view.cols * size_of(c.dtype);
            for (int64_t row = 0; row < shape.tokens(); ++row) {
                std::memcpy(
                    static_cast<std::byte*>(own->view.data) + row * bytes,
                    static_cast<const std::byte*>(all->view.data) + whole_row(c, rank, row) * bytes,
                    static_cast<size_t>(bytes));
            }
        }
        for (int64_t row = 0; c.documents && row < shape.tokens(); ++row) {
            const auto at = static_cast<size_t>(whole_row(c, rank, row));
            rows.first_visible.push_back(whole.first_visible[at]);
        }
        const kernels::Operators& op = rows.device->operators();
        CountingLink counting(*link);
        Context ctx({.threads = 1, .poll = [&] { counting.poll(); }, .operators = &op});
        Poisoned workspace(*rows.device, block.workspace_bytes({.operators = op,
                                                                .sequences = shape.sequences,
                                                                .seq_length = shape.seq_length,
                                                                .dtype = c.dtype,
                                                                .threads = 1,
                                                                .context = c.ranks}));
        const Microbatch microbatch{.sequences = shape.sequences,
                                    .seq_length = shape.seq_length,
                                    .first_visible = rows.first_visible};
        const ContextCut cut(c.shape.seq_length, rank, c.ranks);
        StagePass pass{.ctx = ctx,
                       .microbatch = microbatch,
                       .scratch = {.rows = {}, .workspace = workspace.bytes()},
                       .context = {.link = &counting, .cut = &cut}};
        std::ranges::copy(whole.scores.memory.bytes(), rows.scores.memory.bytes().begin());
        block.forward(pass, rows.qkv.view, rows.sinks(c), rows.heads.view, rows.log_sum_exp.view);
        sent.forward[static_cast<size_t>(rank)] = counting.sent;
        workspace.poison();
        block.backward(pass, rows.dheads.view, rows.qkv.view, rows.sinks(c), rows.heads.view,
                       rows.log_sum_exp.view, rows.dqkv.view);
        if (c.sinks) {
            for (const bool accumulate : {false, true}) {
                pass.weight_gradients.accumulate = accumulate;
                if constexpr (std::same_as<Block, ExchangedHeads>) {
                    block.sum_sinks(pass, rows.dscores.view, rows.dsinks.view);
                } else {
                    op.column_sums(ctx, rows.dscores.view, rows.dsinks.view, accumulate);
                }
            }
        }
        sent.backward[static_cast<size_t>(rank)] =
            counting.sent - sent.forward[static_cast<size_t>(rank)];
        dsinks[static_cast<size_t>(rank)] = floats_of(rows.dsinks);
        check(rank, rows);
    });
    if (c.sinks) expect_sums_of_ranks(dsinks, floats_of(whole.dsinks), c.dtype);
    return sent;
}

int cases() {
    return full_run() ? 400 : 40;
}

TEST(GatheredKeys, HaveTheBitsOfWholeSequencesInSegmentsOfWholeTiles) {
    std::mt19937 random(1);
    for (int i = 0; i < cases() / 4; ++i) {
        Attended c = random_case(random, true, false);
        c.dtype = i % 3 == 2 ? DType::bf16 : DType::fp32;
        SCOPED_TRACE(::testing::Message() << c);
        const auto whole = on_one_rank(c, static_cast<unsigned>(i));
        const bool wide = c.dtype == DType::fp32;
        std::optional<Values> dkv;
        if (wide) dkv.emplace(keys_gradients_by_rank(c, *whole));
        on_context_team<GatheredKeys>(c, *whole, [&](int rank, Rows& rows) {
            const auto same = [&](const Values& own, const Values& all, int64_t columns) {
                return same_bits(c, rank, own.view, all.view, {0, columns});
            };
            EXPECT_TRUE(same(rows.heads, whole->heads, c.shape.output_columns()));
            EXPECT_TRUE(same(rows.log_sum_exp, whole->log_sum_exp, c.shape.heads));
            EXPECT_TRUE(same(rows.dqkv, whole->dqkv, c.shape.query_columns())) << "dq";
            EXPECT_LT(difference(c, rank, rows.dqkv.view, whole->dqkv.view), wide ? 1e-5 : 2e-2);
            if (!wide) return;
            const int64_t q = c.shape.query_columns(), kv = c.shape.key_value_columns();
            Values own(*rows.device, rows.dqkv.view.rows, kv, DType::fp32);
            Context ctx({.threads = 1, .poll = {}, .operators = &rows.device->operators()});
            ctx.operators().convert(ctx, rows.dqkv.view.column_range(q, kv), own.view);
            EXPECT_TRUE(same(own, *dkv, kv)) << "dk and dv, in the order of the ranks";
        });
    }
}

TEST(GatheredKeys, FollowWholeSequencesInSegmentsOfAnySize) {
    std::mt19937 random(2);
    for (int i = 0; i < cases(); ++i) {
        const Attended c = random_case(random, false, false);
        SCOPED_TRACE(::testing::Message() << c);
        const auto whole = on_one_rank(c, static_cast<unsigned>(i));
        on_context_team<GatheredKeys>(c, *whole, [&](int rank, Rows& rows) {
            EXPECT_LT(difference(c, rank, rows.heads.view, whole->heads.view), 1e-5);
            EXPECT_LT(difference(c, rank, rows.log_sum_exp.view, whole->log_sum_exp.view), 1e-5);
            EXPECT_LT(difference(c, rank, rows.dqkv.view, whole->dqkv.view), 1e-5);
        });
    }
}

TEST(GatheredKeys, SendNoSegmentThatNoQueryOfTheReceiverSees) {
    std::mt19937 random(3);
    for (int i = 0; i < 8; ++i) {
        const Attended c = random_case(random, false, false);
        SCOPED_TRACE(::testing::Message() << c);
        const auto whole = on_one_rank(c, static_cast<unsigned>(i));
        const Sent sent = on_context_team<GatheredKeys>(c, *whole, [](int, Rows&) {});
        const int64_t segment = c.shape.sequences * c.shape.seq_length / (2 * c.ranks) *
                                c.shape.key_value_columns() * size_of(c.dtype);
        for (int rank = 0; rank < c.ranks; ++rank) {
            const auto at = static_cast<size_t>(rank);
            // All others see its first segment; its second one is behind the tokens of later ranks.
            EXPECT_EQ(sent.forward[at], (c.ranks - 1 + rank) * segment) << rank;
            // Gradients take the way back: those of all first segments, and of later ranks' second.
            EXPECT_EQ(sent.backward[at], 3 * (c.ranks - 1) * segment) << rank;
        }
    }
}

TEST(ExchangedHeads, HaveTheBitsOfWholeSequences) {
    std::mt19937 random(4);
    for (int i = 0; i < cases(); ++i) {
        Attended c = random_case(random, i % 8 == 0, true);
        c.dtype = i % 3 == 2 ? DType::bf16 : DType::fp32;
        SCOPED_TRACE(::testing::Message() << c);
        const auto whole = on_one_rank(c, static_cast<unsigned>(i));
        const Sent sent = on_context_team<ExchangedHeads>(c, *whole, [&](int rank, Rows& rows) {
            EXPECT_TRUE(same_bits(c, rank, rows.heads.view, whole->heads.view,
                                  {0, c.shape.output_columns()}));
            EXPECT_TRUE(
                same_bits(c, rank, rows.dqkv.view, whole->dqkv.view, {0, c.shape.qkv_columns()}));
        });
        const int64_t tokens = c.shape.tokens() / c.ranks;
        const int64_t qkv = c.shape.qkv_columns(), out = c.shape.output_columns();
        // All heads but the own ones travel; beginnings of documents go to everybody.
        const auto bytes = [&](int64_t columns) {
            return tokens * (c.ranks - 1) *
                   (columns / c.ranks * size_of(c.dtype) + (c.documents ? 4 : 0));
        };
        for (const int64_t forward : sent.forward) EXPECT_EQ(forward, bytes(qkv + out));
        for (const int64_t backward : sent.backward) EXPECT_EQ(backward, bytes(2 * qkv + 2 * out));
    }
}

TEST(PanelsOf, AreTheMostThatDivideTheHeads) {
    EXPECT_EQ(panels_of(8, 4), 4);
    EXPECT_EQ(panels_of(6, 4), 3);
    EXPECT_EQ(panels_of(7, 4), 1);
    EXPECT_EQ(panels_of(2, 4), 2);
    EXPECT_EQ(panels_of(1, 1), 1);
}

}  // namespace
}  // namespace vocabpipe::testing
