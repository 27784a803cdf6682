// SPDX-License-Identifier: Apache-2.0
// Megatron's combined 1F1B (overlap_moe_expert_parallel_comm), for the lists of any family: the
// exchanges of one pass hide behind the products of the other.
//
//   p=2, D=2, rank 0:  F0 F1 F2 | (B0;F3) (B1;F4) ... | B(m-3) B(m-2) B(m-1)
#include "schedules/pair_neighbors.hpp"

#include <cstddef>

namespace vocabpipe {

namespace {

/// Every backward of a microbatch needs every forward of it.
bool may_overlap(const Pass& first, const Pass& second) {
    return (first.op == Op::B || first.op == Op::I) && second.op == Op::F &&
           first.microbatch != second.microbatch;
}

}  // namespace

void pair_neighbors(Schedule& schedule) {
    for (std::vector<Pass>& list : schedule.passes) {
        for (size_t i = 0; i + 1 < list.size(); ++i) {
            if (!list[i].with_next && !list[i + 1].with_next) {
                list[i].with_next = may_overlap(list[i], list[i + 1]);
            }
            if (list[i].with_next) ++i;
        }
    }
}

}  // namespace vocabpipe
