// SPDX-License-Identifier: Apache-2.0
#include "src/plan/end_of_step.hpp"

#include "src/model/tensor_shard.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace vocabpipe {

EndOfStep::EndOfStep(const StepModel& step)
    : step_(step),
      mesh_(step.sizes.mesh(step.placement.ranks)),
      at_once_(step.costs.communication_order() == CommunicationOrder::lanes),
      input_rank_(step.placement.input.owners().front()),
      output_rank_(step.placement.output.owners().front()) {
    const int64_t piece =
        step.costs.measured_on_hosts() ? kBucketPieceOfHosts : LowerOptions().bucket_piece;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        reductions_.push_back(reduction_of(rank, piece));
    }
    if (mesh_.size() == 1) return;
    std::vector<int> everyone(static_cast<size_t>(mesh_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    reports_ns_ = step.costs.transfer_ns(Do::all_gather, {everyone, -1}, step.sizes.report_bytes);
}

EndOfStep::Reduction EndOfStep::reduction_of(int rank, int64_t piece) const {
    Reduction reduction;
    if (mesh_.slices() == 1) return reduction;
    struct Known {
        Group group;
        std::map<int64_t, std::pair<Sum, int64_t>>
            of;  ///< [elements] sum, gather; layers are alike
    };
    std::map<Axis, Known> known;
    for (const GradientBucket& bucket : step_.sizes.buckets[static_cast<size_t>(rank)]) {
        const int64_t members = mesh_.size_of(bucket.axis);
        const int64_t elements = bucket.first.back();
        if (members == 1 || elements == 0) continue;
        auto& [group, of] = known[bucket.axis];
        if (group.ranks.empty()) {
            group = {mesh_.ranks_along(bucket.axis, {.pipeline = rank}), -1, bucket.axis};
        }
        const auto [found, added] = of.try_emplace(elements);
        auto& [sum, gather_ns] = found->second;
        if (added) {
            sum.pieces = std::max<int64_t>(1, elements / piece);
            const int64_t length = elements / sum.pieces;
            sum.travel_ns = step_.costs.transfer_ns(Do::all_to_all, group, length * 4);
            sum.add_ns = step_.costs.local_ns(Do::ordered_sum, (length + length / members) * 4);
            gather_ns = step_.costs.transfer_ns(Do::all_gather_v, group,
                                                elements / members * size_of(step_.sizes.dtype));
        }
        reduction.sums.push_back(sum);
        reduction.sums.back().bucket = &bucket;
        if (bucket.shards_weights) continue;
        reduction.gather_ns =
            at_once_ ? std::max(reduction.gather_ns, gather_ns) : reduction.gather_ns + gather_ns;
    }
    return reduction;
}

int64_t EndOfStep::ready_ns(const Sum& sum, size_t rank, const PassEnds& ends) const {
    if (!step_.costs.overlaps_gradients()) return ends.rank[rank];
    switch (sum.bucket->of) {
        case GradientBucket::Of::input:
            return ends.input[rank];
        case GradientBucket::Of::output:
            return ends.output[rank];
        default:
            return ends.stage[static_cast<size_t>(sum.bucket->stage)];
    }
}

/// When all gradients of a rank are added up.
int64_t EndOfStep::summed_ns(size_t rank, const PassEnds& ends) const {
    std::vector<std::pair<int64_t, const Sum*>> sums;
    for (const Sum& sum : reductions_[rank].sums) {
        sums.emplace_back(ready_ns(sum, rank, ends), &sum);
    }
    std::stable_sort(sums.begin(), sums.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    int64_t lane = 0, before = 0, last = 0, latest = 0;  // ends of the last two pieces
    for (const auto& [ready, sum] : sums) {
        for (int64_t piece = 0; piece < sum->pieces; ++piece) {
            const int64_t begin = std::max({ready, lane, before});
            lane = at_once_ ? begin : begin + sum->travel_ns;
            before = std::exchange(last, begin + sum->piece_ns());
            latest = std::max(latest, last);
        }
    }
    return latest;
}

/// A bound for any order of the buckets: all pieces of a bucket follow its last gradient, and two
/// of all pieces are on their way at a time.
int64_t EndOfStep::least_summed_ns(size_t rank, const PassEnds& ends) const {
    const std::vector<Sum>& sums = reductions_[rank].sums;
    if (sums.empty()) return 0;
    int64_t first = std::numeric_limits<int64_t>::max(), all = 0, travelling = 0, latest = 0;
    for (const Sum& sum : sums) {
        const int64_t ready = ready_ns(sum, rank, ends);
        first = std::min(first, ready);
        all += sum.pieces * sum.piece_ns();
        travelling += sum.pieces * sum.travel_ns;
        latest = std::max(latest, ready + (sum.pieces + 1) / 2 * sum.piece_ns());
    }
    return std::max({latest, first + all / 2, at_once_ ? 0 : first + travelling});
}

int64_t EndOfStep::pass_ns(int rank, Op op) const {
    return step_.costs.pass_ns(rank * mesh_.slices(), {.op = op});
}

bool EndOfStep::reduces(int rank) const {
    const Schedule& placement = step_.placement;
    return step_.sizes.tied && placement.input.rows(rank) + placement.output.rows(rank) > 0;
}

int64_t EndOfStep::received_bytes() const {
    const Schedule& placement = step_.placement;
    if (!step_.sizes.tied || placement.input == placement.output) return 0;
    return largest_part(placement.input.vocab_size(), mesh_.tensor) * step_.sizes.hidden * 4;
}

bool EndOfStep::receives(int rank) const {
    return received_bytes() > 0 && reduces(rank);
}

void EndOfStep::reduce_tied(PassEnds& ends) const {
    int64_t arrive = 0;
    if (const int64_t bytes = received_bytes(); bytes > 0) {
        // Both directions, one after the other in their common lane.
        const Group pair{{input_rank_, output_rank_}, -1};
        arrive = std::max(ends.rank[static_cast<size_t>(input_rank_)],
                          ends.rank[static_cast<size_t>(output_rank_)]) +
                 2 * PipelineCosts(step_.costs).transfer_ns(Do::send, pair, bytes);
    }
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        if (!reduces(rank)) continue;
        const auto r = static_cast<size_t>(rank);
        ends.rank[r] = std::max(ends.rank[r], arrive) + pass_ns(rank, Op::Reduce);
        ends.input[r] = ends.output[r] = ends.rank[r];
    }
}

template <typename Summed>
int64_t EndOfStep::end_ns(PassEnds ends, const Summed& summed) const {
    if (step_.sizes.tied) reduce_tied(ends);
    int64_t gathered = 0;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        const auto r = static_cast<size_t>(rank);
        gathered =
            std::max(gathered, std::max(ends.rank[r], summed(r, ends)) + pass_ns(rank, Op::Report));
    }
    gathered += reports_ns_;
    int64_t end = 0;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        end = std::max(end, gathered + pass_ns(rank, Op::Update) +
                                reductions_[static_cast<size_t>(rank)].gather_ns);
    }
    return end + step_.costs.fixed_step_ns();
}

int64_t EndOfStep::step_ns(PassEnds ends) const {
    return end_ns(std::move(ends),
                  [&](size_t rank, const PassEnds& with) { return summed_ns(rank, with); });
}

int64_t EndOfStep::least_step_ns(PassEnds ends) const {
    return end_ns(std::move(ends),
                  [&](size_t rank, const PassEnds& with) { return least_summed_ns(rank, with); });
}

std::vector<int64_t> EndOfStep::busy_ns() const {
    std::vector<int64_t> busy;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        busy.push_back(pass_ns(rank, Op::Report) + pass_ns(rank, Op::Update) +
                       (reduces(rank) ? pass_ns(rank, Op::Reduce) : 0));
    }
    return busy;
}

}  // namespace vocabpipe
