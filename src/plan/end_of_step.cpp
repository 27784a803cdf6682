// SPDX-License-Identifier: Apache-2.0
#include "src/plan/end_of_step.hpp"

#include "src/model/tensor_shard.hpp"

#include <algorithm>
#include <numeric>

namespace vocabpipe {

EndOfStep::EndOfStep(const StepModel& step)
    : step_(step),
      mesh_(step.sizes.mesh(step.placement.ranks)),
      input_rank_(step.placement.input.owners().front()),
      output_rank_(step.placement.output.owners().front()) {
    for (int rank = 0; rank < mesh_.pipeline; ++rank) exchanges_.push_back(exchange_of(rank));
    if (mesh_.size() == 1) return;
    std::vector<int> everyone(static_cast<size_t>(mesh_.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    reports_ns_ = step.costs.transfer_ns(Do::all_gather, {everyone, -1}, step.sizes.report_bytes);
}

EndOfStep::Exchange EndOfStep::exchange_of(int rank) const {
    Exchange exchange;
    if (mesh_.slices() == 1) return exchange;
    for (const GradientBucket& bucket : step_.sizes.buckets[static_cast<size_t>(rank)]) {
        const int64_t members = mesh_.size_of(bucket.axis);
        if (members == 1) continue;
        const Group group{mesh_.ranks_along(bucket.axis, {.pipeline = rank}), -1, bucket.axis};
        const int64_t elements = bucket.first.back();
        const int64_t own = elements / members;
        exchange.sum_ns += step_.costs.transfer_ns(Do::all_to_all, group, elements * 4) +
                           step_.costs.local_ns(Do::ordered_sum, (elements + own) * 4);
        exchange.gather_ns +=
            step_.costs.transfer_ns(Do::all_gather_v, group, own * size_of(step_.sizes.dtype));
    }
    return exchange;
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

void EndOfStep::reduce_tied(std::vector<int64_t>& ends) const {
    int64_t arrive = 0;
    if (const int64_t bytes = received_bytes(); bytes > 0) {
        // Both directions, one after the other in their common lane.
        const Group pair{{input_rank_, output_rank_}, -1};
        arrive = std::max(ends[static_cast<size_t>(input_rank_)],
                          ends[static_cast<size_t>(output_rank_)]) +
                 2 * PipelineCosts(step_.costs).transfer_ns(Do::send, pair, bytes);
    }
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        if (!reduces(rank)) continue;
        int64_t& end = ends[static_cast<size_t>(rank)];
        end = std::max(end, arrive) + pass_ns(rank, Op::Reduce);
    }
}

int64_t EndOfStep::step_ns(std::vector<int64_t> ends) const {
    if (step_.sizes.tied) reduce_tied(ends);
    int64_t gathered = 0;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        const auto r = static_cast<size_t>(rank);
        gathered = std::max(gathered, ends[r] + exchanges_[r].sum_ns + pass_ns(rank, Op::Report));
    }
    gathered += reports_ns_;
    int64_t end = 0;
    for (int rank = 0; rank < mesh_.pipeline; ++rank) {
        end = std::max(end, gathered + pass_ns(rank, Op::Update) +
                                exchanges_[static_cast<size_t>(rank)].gather_ns);
    }
    return end + step_.costs.fixed_step_ns();
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
