// SPDX-License-Identifier: Apache-2.0
#include "src/imported/measured_run.hpp"

#include "src/schedule/run_recorder.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vocabpipe::imported {

namespace {

/// The moment from which a pass could run: its rank was free and its input had arrived.
/// MeasuredPass::kUnknown: nothing was waited for.
int64_t ready_ns(const MeasuredStep& step, const StepIndex& index, size_t rank, size_t position) {
    const MeasuredPass& one = step[rank][position];
    int64_t ready = position > 0 ? step[rank][position - 1].end_ns : MeasuredPass::kUnknown;
    if (one.arrived_ns != MeasuredPass::kUnknown) return std::max(ready, one.arrived_ns);
    if (const auto from = index.input_of(one.pass)) {
        const MeasuredPass& made = step[static_cast<size_t>(from->rank)][from->position];
        const bool travels = from->rank != static_cast<int>(rank);
        // A message whose arrival nobody recorded is taken to have ended the wait for it.
        ready = std::max(ready, travels ? std::min(one.begin_ns, one.end_ns) : made.end_ns);
    }
    return ready;
}

}  // namespace

StepIndex::StepIndex(const MeasuredStep& step, int stages) : stages_(stages) {
    for (size_t rank = 0; rank < step.size(); ++rank) {
        for (size_t i = 0; i < step[rank].size(); ++i) {
            const Pass& pass = step[rank][i].pass;
            const Op op = pass.op == Op::I ? Op::B : pass.op;
            places_[{op, pass.stage, pass.microbatch}] = {static_cast<int>(rank), i};
        }
    }
}

std::optional<StepIndex::Place> StepIndex::input_of(const Pass& pass) const {
    const auto find = [&](Op op, int stage) -> std::optional<Place> {
        const auto found = places_.find({op, static_cast<uint16_t>(stage), pass.microbatch});
        return found == places_.end() ? std::nullopt : std::optional(found->second);
    };
    switch (pass.op) {
        case Op::F:
            return pass.stage == 0 ? std::nullopt : find(Op::F, pass.stage - 1);
        case Op::B:
        case Op::I:
            return pass.stage + 1 < stages_ ? find(Op::B, pass.stage + 1) : find(Op::F, pass.stage);
        case Op::W:
            return find(Op::B, pass.stage);
        default:
            return std::nullopt;
    }
}

int64_t MeasuredRun::makespan_ns(const MeasuredStep& step) {
    int64_t begin = INT64_MAX, end = INT64_MIN;
    for (const std::vector<MeasuredPass>& list : step) {
        for (const MeasuredPass& one : list) {
            begin = std::min(begin, one.begin_ns);
            end = std::max(end, one.end_ns);
        }
    }
    return end - begin;
}

size_t MeasuredRun::median_step() const {
    std::vector<size_t> order(steps.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, {}, [&](size_t step) { return makespan_ns(steps[step]); });
    return order[(order.size() - 1) / 2];
}

RecordedRun record_step(const MeasuredRun& run, size_t which) {
    const MeasuredStep& step = run.steps[which];
    const StepIndex index(step, run.stages);
    int64_t origin = INT64_MAX;
    for (const std::vector<MeasuredPass>& list : step) {
        for (const MeasuredPass& one : list) origin = std::min(origin, one.begin_ns);
    }
    RunRecorder recorder(run.title);
    std::vector<uint32_t> actions;  // [rank] number of the next slice after those of its passes
    for (const std::vector<MeasuredPass>& list : step) {
        actions.push_back(static_cast<uint32_t>(list.size()));
    }
    uint32_t order = 0;
    for (size_t rank = 0; rank < step.size(); ++rank) {
        for (size_t i = 0; i < step[rank].size(); ++i) {
            const MeasuredPass& one = step[rank][i];
            uint32_t waits_for = RecordedRun::kNone;
            const auto from = index.input_of(one.pass);
            if (from && from->rank == static_cast<int>(rank)) {
                waits_for = static_cast<uint32_t>(from->position);
            } else if (from) {
                const auto sender = static_cast<size_t>(from->rank);
                const MeasuredPass& made = step[sender][from->position];
                const Lane lane = one.pass.op == Op::F ? Lane::forward : Lane::backward;
                const std::string what = (lane == Lane::forward ? " activation" : " gradient") +
                                         std::string(" of microbatch ") +
                                         std::to_string(one.pass.microbatch);
                const int64_t arrived = std::max(
                    made.end_ns,
                    one.arrived_ns == MeasuredPass::kUnknown ? one.begin_ns : one.arrived_ns);
                const int64_t sent = std::min(
                    arrived, made.sent_ns == MeasuredPass::kUnknown ? made.end_ns : made.sent_ns);
                const int64_t posted = std::min(
                    arrived, one.posted_ns == MeasuredPass::kUnknown ? sent : one.posted_ns);
                waits_for = actions[rank]++;
                recorder.add({.begin_ns = std::max<int64_t>(0, posted - origin),
                              .end_ns = arrived - origin,
                              .order = order,
                              .rank = static_cast<uint16_t>(rank),
                              .lane = lane},
                             "receive from rank " + std::to_string(sender) + what, waits_for,
                             RecordedRun::kNone);
                recorder.add({.begin_ns = sent - origin,
                              .end_ns = arrived - origin,
                              .order = order++,
                              .rank = static_cast<uint16_t>(sender),
                              .lane = lane},
                             "send to rank " + std::to_string(rank) + what, actions[sender]++,
                             static_cast<uint32_t>(from->position));
            }
            recorder.add({.begin_ns = one.begin_ns - origin,
                          .end_ns = one.end_ns - origin,
                          .cpu_ns = one.end_ns - one.begin_ns,
                          .rank = static_cast<uint16_t>(rank),
                          .lane = Lane::compute},
                         to_string(one.pass), static_cast<uint32_t>(i), waits_for);
        }
    }
    RecordedRun recorded = std::move(recorder).take(run.ranks());
    recorded.barrier = true;
    recorded.memory.resize(static_cast<size_t>(run.ranks()));
    return recorded;
}

std::string pass_times_csv(const MeasuredRun& run) {
    struct Sum {
        int64_t ns = 0, count = 0;
    };
    std::map<std::tuple<int, int, Op>, Sum> sums;  // rank, stage, op
    for (const MeasuredStep& step : run.steps) {
        const StepIndex index(step, run.stages);
        for (size_t rank = 0; rank < step.size(); ++rank) {
            for (size_t i = 0; i < step[rank].size(); ++i) {
                const MeasuredPass& one = step[rank][i];
                const int64_t ready = std::max(ready_ns(step, index, rank, i),
                                               i == 0 ? one.begin_ns : MeasuredPass::kUnknown);
                Sum& sum = sums[{static_cast<int>(rank), one.pass.stage, one.pass.op}];
                sum.ns += std::max<int64_t>(1, one.end_ns - std::min(ready, one.begin_ns));
                ++sum.count;
            }
        }
    }
    std::string text = "rank,op,stage,ns\n";
    for (const auto& [key, sum] : sums) {
        const auto& [rank, stage, op] = key;
        text += std::to_string(rank) + "," + std::string(traits(op).name) + "," +
                std::to_string(stage) + "," +
                std::to_string(std::max<int64_t>(1, sum.ns / sum.count)) + "\n";
    }
    return text;
}

}  // namespace vocabpipe::imported
