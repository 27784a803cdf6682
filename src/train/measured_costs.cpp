// SPDX-License-Identifier: Apache-2.0
#include "src/train/measured_costs.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace vocabpipe {

namespace {

// Two ranks of one machine, not idle: 8 B 0.16 us, 1 MiB 3.7 GB/s (docs/performance.md, assumed).
constexpr int64_t kLatencyNs = 1000;
constexpr double kBytesPerNs = 3.7;

struct Mean {
    int64_t sum = 0;
    int64_t count = 0;
    [[nodiscard]] int64_t value() const { return count == 0 ? 0 : sum / count; }
};

}  // namespace

TableCosts measured_costs(const Timeline& timeline, const std::vector<Program>& programs,
                          int stages, bool cpu_time) {
    std::map<std::pair<size_t, Op>, Mean> by_stage;
    std::map<std::pair<size_t, Op>, Mean> by_rank;
    int64_t local_ns = 0;
    int64_t local_bytes = 0;
    for (const Span& span : timeline.spans) {
        const Program& program = programs[span.rank];
        const Action& action = program.actions[span.action];
        const int64_t cost = cpu_time ? span.cpu_ns : span.end_ns - span.begin_ns;
        if (action.what == Do::pass) {
            const Pass& pass = program.passes[action.item];
            Mean& mean = traits(pass.op).has_stage ? by_stage[{pass.stage, pass.op}]
                                                   : by_rank[{span.rank, pass.op}];
            mean.sum += cost;
            ++mean.count;
        } else if (action.lane == Lane::combine) {
            local_ns += cost;
            for (const uint32_t operand : program.operands_of(action)) {
                if (operand != kNoBuffer) {
                    local_bytes += static_cast<int64_t>(program.buffers[operand].bytes);
                }
            }
        }
    }
    TableCosts costs;
    costs.stage_ns.resize(static_cast<size_t>(stages));
    costs.rank_ns.resize(programs.size());
    for (const auto& [key, mean] : by_stage) {
        costs.stage_ns[key.first][static_cast<size_t>(key.second)] = mean.value();
    }
    for (const auto& [key, mean] : by_rank) {
        costs.rank_ns[key.first][static_cast<size_t>(key.second)] = mean.value();
    }
    costs.latency_ns = kLatencyNs;
    costs.bytes_per_ns = kBytesPerNs;
    if (local_ns > 0) {
        costs.local_bytes_per_ns = static_cast<double>(local_bytes) / static_cast<double>(local_ns);
    }
    return costs;
}

ForwardBackwardCosts forward_backward(const TableCosts& costs) {
    int64_t forward = 0;
    int64_t backward = 0;
    for (const TableCosts::OpCosts& stage : costs.stage_ns) {
        forward += stage[static_cast<size_t>(Op::F)];
        backward += stage[static_cast<size_t>(Op::B)] + stage[static_cast<size_t>(Op::I)] +
                    stage[static_cast<size_t>(Op::W)];
    }
    const auto stages = static_cast<int64_t>(costs.stage_ns.size());
    return {std::max<int64_t>(forward / stages, 1), std::max<int64_t>(backward / stages, 1)};
}

}  // namespace vocabpipe
