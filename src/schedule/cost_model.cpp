// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cost_model.hpp"

#include "src/schedule/exchange_share.hpp"
#include "src/schedule/ops.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace vocabpipe {

namespace {

int64_t at_rate(int64_t bytes, double bytes_per_ns) {
    return bytes_per_ns > 0 ? std::llround(static_cast<double>(bytes) / bytes_per_ns) : 0;
}

}  // namespace

std::string_view to_string(CommunicationOrder order) {
    switch (order) {
        case CommunicationOrder::lanes:
            return "lanes";
        case CommunicationOrder::streams:
            return "streams";
        case CommunicationOrder::launches:
            return "launches";
        case CommunicationOrder::serial:
            return "serial";
    }
    return "?";
}

CommunicationOrder communication_order_from(std::string_view name) {
    for (const CommunicationOrder order : kCommunicationOrders) {
        if (to_string(order) == name) return order;
    }
    throw UsageError("unknown communication order '" + std::string(name) +
                     "'; use lanes, streams, launches or serial");
}

TableCosts TableCosts::uniform(int ranks, int stages, int64_t forward, int64_t backward,
                               int64_t vocabulary_pass) {
    const auto op = [](OpCosts& costs, Op which) -> int64_t& {
        return costs[static_cast<size_t>(which)];
    };
    OpCosts stage{};
    op(stage, Op::F) = forward;
    op(stage, Op::B) = backward;
    op(stage, Op::I) = backward / 2;
    op(stage, Op::W) = backward - backward / 2;
    OpCosts rank{};
    for (const Op which : {Op::E, Op::G, Op::S, Op::T}) op(rank, which) = vocabulary_pass;
    TableCosts costs;
    costs.stage_ns.assign(static_cast<size_t>(stages), stage);
    costs.rank_ns.assign(static_cast<size_t>(ranks), rank);
    return costs;
}

int64_t TableCosts::pass_ns(int rank, const Pass& pass) const {
    const bool of_stage = traits(pass.op).has_stage;
    const std::vector<OpCosts>& rows = of_stage ? stage_ns : rank_ns;
    const size_t row = of_stage ? pass.stage : static_cast<size_t>(rank / slices);
    if (row < rows.size()) return lengths.pass_time(cost_in(rows[row], pass.op), pass);
    throw UsageError("costs: no cost for " + to_string(pass) + " on rank " + std::to_string(rank) +
                     "; there are " + std::to_string(stage_ns.size()) + " stages and " +
                     std::to_string(rank_ns.size()) + " pipeline ranks x " +
                     std::to_string(slices) + " slices");
}

int64_t TableCosts::exchange_ns(int rank, const Pass& pass) const {
    return exchange_share_ns(pass, pass_ns(rank, pass), exchange_permille);
}

StreamedShare TableCosts::streamed_share(int rank, const Pass& pass) const {
    if (layers_per_stage <= 0) return {};
    const auto of_stage = [this](double of_layer) {
        return static_cast<int>(1000 * std::min(1.0, of_layer / std::max(1.0, layers_per_stage)));
    };
    const auto vocabulary = [&](Op op) {
        return pass_ns(rank, {.op = op, .stage = pass.stage, .microbatch = pass.microbatch});
    };
    switch (pass.op) {
        case Op::F:
            return {.input_end = of_stage(3.0 / 12),
                    .output_begin = 1000 - of_stage(8.0 / 12),
                    .input_piece_ns = piece_ns,
                    .output_piece_ns = 2 * piece_ns};
        case Op::I:
            return {.input_end = of_stage(8.0 / 12),
                    .output_begin = 1000 - of_stage(3.0 / 12),
                    .input_piece_ns = 2 * piece_ns,
                    .output_piece_ns = piece_ns};
        case Op::B:  // made before the first layer's weight gradients
            return {.input_end = of_stage(8.0 / 24),
                    .output_begin = 1000 - of_stage(0.5),
                    .output_end = 1000 - of_stage(0.5),
                    .input_piece_ns = 2 * piece_ns};
        case Op::S:  // with one barrier it has two products, and T one
            return {.input_end = vocabulary(Op::S) > vocabulary(Op::T) ? 500 : 1000,
                    .input_piece_ns = piece_ns};
        case Op::T:
            return {.output_begin = 500, .output_end = 500};
        default:
            return {};
    }
}

bool is_of_pipeline(Do what, const Group& group) {
    const bool one_pipeline = group.axis == Axis::pipeline || group.axis == Axis::model;
    return one_pipeline && what != Do::send && what != Do::receive;
}

int64_t TableCosts::transfer_ns(Do what, const Group& group, int64_t bytes) const {
    using enum CollectiveAlgorithm;
    if (free_vocabulary_collectives && is_of_pipeline(what, group)) return 0;
    const auto members = static_cast<int64_t>(group.ranks.size());
    const int64_t peers = std::max<int64_t>(members - 1, 1);
    const int64_t rounds = std::bit_width(static_cast<uint64_t>(peers));  // ceil(log2 members)
    const auto time = [&](int64_t of_bytes) { return at_rate(of_bytes, bytes_per_ns); };
    const int64_t whole = time(bytes);
    const ActionTraits& row = traits(what);
    const CollectiveAlgorithm algorithm =
        row.algorithm == nullptr ? direct : algorithms.*row.algorithm;
    if (algorithm == direct) return latency_ns + whole;
    if (row.volume == Volume::by_blocks) {
        if (algorithm == tree) return rounds * (latency_ns + time(bytes / 2));
        return (algorithm == ring ? peers : 1) * latency_ns + time(bytes * peers / members);
    }
    const bool one_message = row.volume == Volume::once;
    switch (algorithm) {
        case ring:
            return peers * latency_ns + (one_message ? 1 : peers) * whole;
        case tree:
            return rounds * latency_ns + (one_message ? rounds : peers) * whole;
        default:
            return latency_ns + peers * whole;
    }
}

int64_t TableCosts::overlap_slowdown_permille(int /*rank*/, const Pass& pass) const {
    return traits(pass.op).of_step ? 0 : slowdown_permille;
}

int64_t TableCosts::local_ns(Do, int64_t bytes) const {
    return at_rate(bytes, local_bytes_per_ns);
}

}  // namespace vocabpipe
