// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/moe/team_exchange.hpp"

#include "src/model/blocks/whole_exchange.hpp"
#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace vocabpipe {

namespace {

constexpr int64_t kAlignment = 64;  // bytes; each part of a message starts at a multiple

int64_t aligned(int64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Bytes part_of(Bytes memory, int64_t first, int64_t count) {
    return memory.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

std::span<const int32_t> part_of(std::span<const int32_t> numbers, RowRange range) {
    return numbers.subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.size()));
}

/// Bytes that one member sends another for `copies` copies at the end of a wave.
int64_t message_bytes(const TeamSizes& sizes, int64_t copies) {
    const int64_t dweights = copies * sizes.shape.per_token * size_of(DType::fp32);
    return aligned(aligned(dweights) + copies * sizes.hidden_size * size_of(sizes.dtype));
}

/// The most bytes of all such messages for `copies` copies, however these divide among the members.
int64_t most_bytes(const TeamSizes& sizes, int64_t copies) {
    return message_bytes(sizes, copies) + 2 * kAlignment * sizes.shape.members;
}

/// The messages to or from the members at the end of a wave, one after the other in memory. Each
/// has the gradients of weights (copies, k), if they travel, then panel by panel the sums (copies,
/// columns of the panel).
class PanelMessages {
public:
    PanelMessages(const TeamSizes& sizes, bool with_dweights, Bytes memory)
        : sizes_(sizes), columns_(sizes.columns()), with_dweights_(with_dweights), rest_(memory) {}

    /// Adds the message of the next member, for this number of copies.
    void add(int64_t copies) {
        Message message{.copies = copies, .bytes = {}, .first_panel = 0, .ends = {}};
        if (copies > 0) {
            if (with_dweights_) {
                message.first_panel =
                    aligned(copies * sizes_.shape.per_token * size_of(DType::fp32));
                message.ends.push_back(message.first_panel);
            }
            for (int panel = 0; panel < columns_.pieces(0); ++panel) {
                message.ends.push_back(message.first_panel + copies * columns_.rows(0, panel).end *
                                                                 size_of(sizes_.dtype));
            }
            message.bytes = part_of(rest_, 0, message.ends.back());
            rest_ = rest_.subspan(static_cast<size_t>(aligned(message.ends.back())));
        }
        messages_.push_back(std::move(message));
    }

    [[nodiscard]] Bytes bytes(int member) const { return of(member).bytes; }
    [[nodiscard]] std::span<const int64_t> ends(int member) const { return of(member).ends; }
    /// Empty where the member has no copies.
    [[nodiscard]] Tensor dweights(int member) const {
        const Message& message = of(member);
        return {message.bytes.data(), message.copies, sizes_.shape.per_token, DType::fp32};
    }
    [[nodiscard]] Tensor panel(int member, int panel) const {
        const Message& message = of(member);
        const RowRange columns = columns_.rows(0, panel);
        if (message.copies == 0) return {nullptr, 0, columns.size(), sizes_.dtype};
        const int64_t first =
            message.first_panel + message.copies * columns.first * size_of(sizes_.dtype);
        return {message.bytes.data() + first, message.copies, columns.size(), sizes_.dtype};
    }

private:
    struct Message {
        int64_t copies = 0;
        Bytes bytes;
        int64_t first_panel = 0;
        std::vector<int64_t> ends;
    };
    [[nodiscard]] const Message& of(int member) const {
        return messages_[static_cast<size_t>(member)];
    }

    const TeamSizes& sizes_;
    TileMap columns_;
    bool with_dweights_;
    Bytes rest_;
    std::vector<Message> messages_;
};

}  // namespace

TeamMemory::TeamMemory(Views& views, const TeamSizes& sizes) {
    const RoutingShape& shape = sizes.shape;
    const int64_t received = shape.most_received();
    int64_t columns = sizes.ffn_hidden_size;
    const TileMap panels = sizes.columns();
    for (int panel = 0; panel < panels.pieces(0); ++panel) {
        columns = std::max(columns, panels.rows(0, panel).size());
    }
    home = views.take_bytes(most_bytes(sizes, shape.tokens * shape.most_copies()));
    copies = views.take_bytes(most_bytes(sizes, received));
    weights = views.take(received, shape.per_token, DType::fp32);
    dweights = views.take(received, shape.per_token, DType::fp32);
    rows = views.take(shape.budget, columns, sizes.dtype);
}

void dispatch_tokens(const TeamWave& team, ConstTensor own, const Meanwhile& meanwhile, Tensor rows,
                     const WorkOnRows& work) {
    const StagePass& pass = team.pass;
    const PlacedWave& wave = team.wave;
    const int64_t k = team.sizes.shape.per_token;
    TileLink& link = *pass.experts;
    const int64_t row_bytes = own.cols * size_of(own.dtype);
    const Tensor copies(team.memory.copies.data(), wave.copy_count(), own.cols, own.dtype);
    const auto pieces_with = [&](int member, int64_t count) {
        return pieces_of_copies(count, member == link.rank() ? 1 : team.sizes.shape.pieces);
    };
    std::vector<Tensor> out, in;  // [member]
    std::vector<TileMap> maps;
    std::vector<std::vector<int64_t>> ends, ends_in;
    int64_t sent = 0;
    for (int member = 0; member < link.size(); ++member) {
        const auto count = std::ssize(wave.tokens[static_cast<size_t>(member)]);
        const RowRange place = wave.copies[static_cast<size_t>(member)];
        in.push_back(copies.row_range(place.first, place.size()));
        if (member == link.rank()) {
            out.push_back(in.back());
        } else {
            out.emplace_back(team.memory.home.data() + sent * row_bytes, count, own.cols,
                             own.dtype);
            sent += count;
        }
        maps.push_back(pieces_with(member, count));
        ends.push_back(maps.back().ends(0, row_bytes));
        ends_in.push_back(pieces_with(member, place.size()).ends(0, row_bytes));
    }
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;
    for (size_t m = 0; m < out.size(); ++m) {
        send.push_back({.bytes = bytes_of<const std::byte>(out[m]), .ends = ends[m]});
        receive.push_back({.bytes = bytes_of<std::byte>(in[m]), .ends = ends_in[m]});
    }
    const std::string what = "dispatch for " + std::string(team.name);
    TileLink::Operation operation = link.all_to_all(send, receive, {.what = what});
    for (int i = 1; i <= link.size(); ++i) {
        const int member = link.to(i % link.size());
        const auto m = static_cast<size_t>(member);
        for (int piece = 0; piece < maps[m].pieces(0); ++piece) {
            const RowRange range = maps[m].rows(0, piece);
            pass.op().gather_rows(pass.ctx, own, part_of(wave.tokens[m], range), 1, {},
                                  rows_of(out[m], range));
            operation.release(member, piece + 1);
        }
    }
    if (meanwhile) meanwhile();
    for (auto step = wave.steps.begin(); step != wave.steps.end();) {
        if (step->source != link.rank()) operation.wait(step->source, step->pieces);
        std::vector<RowRange> there = step->rows;  // with rows that have arrived meanwhile
        while (++step != wave.steps.end() && operation.test(step->source, step->pieces)) {
            for (size_t expert = 0; expert < there.size(); ++expert) {
                const RowRange more = step->rows[expert];
                if (there[expert].size() == 0) there[expert].first = more.first;
                if (more.size() > 0) there[expert].end = more.end;
            }
        }
        int64_t count = 0;
        for (const RowRange& of_expert : there) {
            count += of_expert.size();
            if (of_expert.size() == 0) continue;
            pass.op().gather_rows(pass.ctx, copies, part_of(wave.slot_of_row, of_expert), k, {},
                                  rows_of(rows, of_expert));
        }
        if (work && count > 0) work(there);
        pass.ctx.poll();  // each round is a few launches per expert
    }
    operation.finish();
}

void combine_at_home(const TeamWave& team, const MakePanel& make, const Combination& sum,
                     const Meanwhile& meanwhile) {
    const StagePass& pass = team.pass;
    const kernels::Operators& op = pass.op();
    const PlacedWave& wave = team.wave;
    const int64_t k = team.sizes.shape.per_token;
    TileLink& link = *pass.experts;
    const TileMap columns = team.sizes.columns();
    const bool with_dweights = static_cast<bool>(sum.dweights);
    PanelMessages leaving(team.sizes, with_dweights, team.memory.copies);
    PanelMessages coming(team.sizes, with_dweights, team.memory.home);
    for (int member = 0; member < link.size(); ++member) {
        leaving.add(wave.copies[static_cast<size_t>(member)].size());
        const bool self = member == link.rank();  // own sums stay in place
        coming.add(self ? 0 : std::ssize(wave.tokens[static_cast<size_t>(member)]));
    }
    const auto from = [&](int member) -> const PanelMessages& {
        return member == link.rank() ? leaving : coming;
    };
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;
    for (int member = 0; member < link.size(); ++member) {
        send.push_back({.bytes = leaving.bytes(member), .ends = leaving.ends(member)});
        receive.push_back({.bytes = from(member).bytes(member), .ends = from(member).ends(member)});
    }
    const std::string what = "combine for " + std::string(team.name);
    TileLink::Operation operation = link.all_to_all(send, receive, {.what = what});
    // Calls work(member, copies), next members first, own copies last.
    const auto for_homes = [&](const auto& work) {
        for (int i = 1; i <= link.size(); ++i) {
            const int member = link.to(i % link.size());
            const RowRange copies = wave.copies[static_cast<size_t>(member)];
            if (copies.size() > 0) work(member, copies);
        }
    };
    if (with_dweights) {
        for_homes([&](int member, RowRange copies) {
            const ConstTensor made = rows_of(team.memory.dweights, copies);
            op.copy(pass.ctx, bytes_of<const std::byte>(made),
                    bytes_of<std::byte>(leaving.dweights(member)));
            operation.release(member, 1);
        });
    }
    const int before = with_dweights ? 1 : 0;  // pieces before the panels
    for (int panel = 0; panel < columns.pieces(0); ++panel) {
        const RowRange range = columns.rows(0, panel);
        const Tensor made(team.memory.rows.data, wave.row_count(), range.size(), sum.out.dtype);
        make(range, made);
        for_homes([&](int member, RowRange copies) {
            op.combine_rows(pass.ctx, made,
                            part_of(wave.row_of_slot, {copies.first * k, copies.end * k}), k,
                            rows_of(sum.weights, copies), {}, leaving.panel(member, panel));
            operation.release(member, before + panel + 1);
        });
        pass.ctx.poll();
    }
    if (meanwhile) meanwhile();
    // Calls part(member) for every member with copies, once its first `pieces` pieces have arrived.
    const auto at_home = [&](int pieces, const auto& part) {
        std::vector<ConstTensor> parts(static_cast<size_t>(link.size()));
        for (int i = 0; i < link.size(); ++i) {
            const int member = link.from(i);
            if (wave.tokens[static_cast<size_t>(member)].empty()) continue;
            if (member != link.rank()) operation.wait(member, pieces);
            parts[static_cast<size_t>(member)] = part(member);
        }
        return parts;
    };
    if (with_dweights) {
        const auto parts = at_home(1, [&](int member) { return from(member).dweights(member); });
        const ConstTensor had = sum.accumulate ? ConstTensor(sum.dweights) : ConstTensor();
        op.combine_parts(pass.ctx, parts, wave.copy_of_token, had, sum.dweights);
    }
    for (int panel = 0; panel < columns.pieces(0); ++panel) {
        const RowRange range = columns.rows(0, panel);
        const auto parts = at_home(before + panel + 1,
                                   [&](int member) { return from(member).panel(member, panel); });
        const ConstTensor residual =
            sum.residual ? sum.residual.column_range(range.first, range.size()) : ConstTensor();
        op.combine_parts(pass.ctx, parts, wave.copy_of_token, residual,
                         sum.out.column_range(range.first, range.size()));
    }
    operation.finish();
}

void gather_routes(const StagePass& pass, ConstTensor choice, ConstTensor weights, Tensor routes,
                   std::string_view name) {
    TileLink& link = *pass.experts;
    const int64_t of_member = choice.rows + weights.rows;
    const auto part = [&](int member) { return routes.row_range(member * of_member, of_member); };
    const Tensor own = part(link.rank());
    pass.op().copy(pass.ctx, bytes_of<const std::byte>(choice),
                   bytes_of<std::byte>(own.row_range(0, choice.rows)));
    pass.op().copy(pass.ctx, bytes_of<const std::byte>(weights),
                   bytes_of<std::byte>(own.row_range(choice.rows, weights.rows)));
    exchange_whole(link, "choices for " + std::string(name), part);
}

}  // namespace vocabpipe
