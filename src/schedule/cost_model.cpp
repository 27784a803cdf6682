// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace vocabpipe {

namespace {

int64_t at_rate(int64_t bytes, double bytes_per_ns) {
    return bytes_per_ns > 0 ? std::llround(static_cast<double>(bytes) / bytes_per_ns) : 0;
}

}  // namespace

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
    return traits(pass.op).has_stage
               ? stage_ns[pass.stage][static_cast<size_t>(pass.op)]
               : rank_ns[static_cast<size_t>(rank)][static_cast<size_t>(pass.op)];
}

int64_t TableCosts::transfer_ns(Do what, const Group& group, int64_t bytes) const {
    // Linear algorithms: a broadcast's root and a gather's root serve the others one after the
    // other.
    const auto peers = static_cast<int64_t>(group.ranks.size()) - 1;
    const bool one_to_all = what == Do::broadcast || what == Do::gather || what == Do::all_gather;
    return latency_ns +
           at_rate(bytes, bytes_per_ns) * (one_to_all ? std::max<int64_t>(peers, 1) : 1);
}

int64_t TableCosts::local_ns(Do, int64_t bytes) const {
    return at_rate(bytes, local_bytes_per_ns);
}

}  // namespace vocabpipe
