// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/timeline.hpp"

namespace vocabpipe {

/// Pass costs from a measured step: the mean thread CPU time of every kind of pass per stage and
/// rank, which is what the pass would take on a core of its own, with one thread per rank. With
/// more threads per rank (cpu_time = false) the duration is used instead. Links are assumed:
/// latency and rate of Open MPI's shared memory between two idle cores.
[[nodiscard]] TableCosts measured_costs(const Timeline& timeline,
                                        const std::vector<Program>& programs, int stages,
                                        bool cpu_time);

/// Mean F and B over all ranks: what the slot rule of the schedules needs.
struct ForwardBackwardCosts {
    int64_t forward_ns = 1;
    int64_t backward_ns = 2;
};
[[nodiscard]] ForwardBackwardCosts forward_backward(const TableCosts& costs);

}  // namespace vocabpipe
