// SPDX-License-Identifier: Apache-2.0
#include "src/imported/step_times.hpp"

#include "src/schedule/slice_causes.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/user_schedule.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

namespace vocabpipe::imported {

namespace {

/// The rows only say which ranks have a part of the vocabulary.
constexpr int64_t kRows = 1 << 20;

/// The pass of a slice, from "2F" and 7, or "S" and 7; none for those of the whole step.
std::optional<Pass> pass_of(std::string_view name, uint32_t number) {
    if (number == RecordedRun::kNone) return std::nullopt;
    uint16_t stage = 0;
    const char* const last = name.data() + name.size();
    const auto [end, error] = std::from_chars(name.data(), last, stage);
    const bool has_stage = error == std::errc();
    if (has_stage) name.remove_prefix(static_cast<size_t>(end - name.data()));
    for (size_t op = 0; op < kOpTraits.size(); ++op) {
        const OpTraits& row = kOpTraits[op];
        if (row.name != name || row.has_stage != has_stage || row.of_step) continue;
        return Pass{.op = static_cast<Op>(op), .stage = stage, .microbatch = number};
    }
    return std::nullopt;
}

/// How S and T are tied together, which traces say in their titles alone.
Barriers barriers_of(std::string_view title) {
    if (title.find("two_barriers") != std::string_view::npos) return Barriers::two;
    return title.find("one_barrier") != std::string_view::npos ? Barriers::one : Barriers::in_line;
}

int64_t least(const std::vector<int64_t>& values, int64_t if_none) {
    return values.empty() ? if_none : *std::ranges::min_element(values);
}

/// The communication of a run.
class Communications {
public:
    explicit Communications(const RecordedRun& run) {
        std::map<uint32_t, int64_t> ready_ns, end_ns;
        std::map<uint32_t, bool> collective;
        for (const RecordedRun::Slice& slice : run.slices) {
            if (slice.order == RecordedRun::kNone) continue;
            int64_t& ready = ready_ns[slice.order];
            ready = std::max(ready, slice.begin_ns);
            const bool sends = run.names[slice.name].starts_with("send");
            if (sends || slice.lane == Lane::collective) {
                begin_ns_[slice.order] = sends ? slice.begin_ns : ready;
            }
            end_ns[slice.order] = std::max(end_ns[slice.order], slice.end_ns);
            collective[slice.order] = slice.lane == Lane::collective;
        }
        std::vector<int64_t> messages, collectives;
        for (const auto& [order, end] : end_ns) {
            const auto begin = begin_ns_.find(order);
            if (begin == begin_ns_.end()) continue;
            (collective[order] ? collectives : messages).push_back(end - begin->second);
        }
        message_ns = least(messages, 0);
        collective_ns = least(collectives, message_ns);
    }

    int64_t message_ns = 0;     ///< shortest
    int64_t collective_ns = 0;  ///< shortest

    /// How much later than the fastest of its kind it ended, but for the time until `busy_ns`.
    [[nodiscard]] int64_t late_ns(const RecordedRun::Slice& slice, int64_t busy_ns) const {
        const auto begin = begin_ns_.find(slice.order);
        if (begin == begin_ns_.end()) return 0;
        const int64_t usual = slice.lane == Lane::collective ? collective_ns : message_ns;
        return std::max(busy_ns, slice.end_ns) - std::max(busy_ns, begin->second + usual);
    }

private:
    /// By order: when a message was sent, or the last rank of a collective was ready. A receive
    /// that was posted late makes its message late.
    std::map<uint32_t, int64_t> begin_ns_;
};

/// Passes that took each their own time; all else as in a table.
class OwnTimes final : public CostModel {
public:
    explicit OwnTimes(const StepTimes& times)
        : others_(times.mean_costs()), collective_ns_(times.collective_ns) {
        for (size_t rank = 0; rank < times.pass_ns.size(); ++rank) {
            for (size_t i = 0; i < times.pass_ns[rank].size(); ++i) {
                const Pass& pass = times.schedule.passes[rank][i];
                own_[{static_cast<int>(rank), pass.op, pass.stage, pass.microbatch}] =
                    std::max<int64_t>(
                        1, times.pass_ns[rank][i] + times.late_ns[rank][i] + times.gap_ns[rank][i]);
            }
        }
    }
    [[nodiscard]] int64_t pass_ns(int rank, const Pass& pass) const override {
        const auto found = own_.find({rank, pass.op, pass.stage, pass.microbatch});
        return found == own_.end() ? others_.pass_ns(rank, pass) : found->second;
    }
    [[nodiscard]] int64_t transfer_ns(Do what, const Group& group, int64_t bytes) const override {
        const bool message = what == Do::send || what == Do::receive;
        return message ? others_.transfer_ns(what, group, bytes) : collective_ns_;
    }
    [[nodiscard]] int64_t local_ns(Do, int64_t) const override { return 0; }

private:
    TableCosts others_;
    int64_t collective_ns_;
    std::map<std::tuple<int, Op, uint16_t, uint32_t>, int64_t> own_;
};

}  // namespace

StepTimes step_times(const RecordedRun& run) {
    if (run.mesh.slices() > 1) {
        throw UsageError("runs with replicas, tensor or context ranks are not replayed");
    }
    StepTimes times;
    const auto ranks = static_cast<size_t>(run.ranks);
    std::vector<std::vector<Pass>> lists(ranks);
    times.pass_ns.resize(ranks);
    times.late_ns.resize(ranks);
    times.gap_ns.resize(ranks);
    const Communications communications(run);
    std::vector<int64_t> busy_ns(ranks, 0);  // end of the rank's latest pass
    const std::vector<SliceCause> causes = slice_causes(run);
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (uint32_t i = 0; i < run.slices.size(); ++i) {
        const RecordedRun::Slice& slice = run.slices[i];
        if (slice.lane != Lane::compute) continue;
        const std::optional<Pass> pass = pass_of(run.names[slice.name], slice.number);
        if (!pass) continue;
        lists[slice.rank].push_back(*pass);
        times.pass_ns[slice.rank].push_back(slice.end_ns - slice.begin_ns);
        first = std::min(first, slice.begin_ns);
        last = std::max(last, slice.end_ns);
        const uint32_t cause = causes[i].slice;
        const bool waited = cause != RecordedRun::kNone;
        const uint32_t input = slice.waited_for == RecordedRun::kNone ? cause : slice.waited_for;
        times.late_ns[slice.rank].push_back(
            input == RecordedRun::kNone
                ? 0
                : communications.late_ns(run.slices[input], busy_ns[slice.rank]));
        times.gap_ns[slice.rank].push_back(
            waited ? std::max<int64_t>(0, slice.begin_ns - run.slices[cause].end_ns) : 0);
        busy_ns[slice.rank] = slice.end_ns;
    }
    bool vocabulary = false;
    for (size_t rank = 0; rank < ranks; ++rank) {
        if (lists[rank].empty()) {
            throw UsageError("rank " + std::to_string(rank) + " has no passes to replay");
        }
        for (const Pass& pass : lists[rank]) vocabulary |= traits(pass.op).vocabulary;
    }
    times.measured_ns = last - first;
    times.message_ns = communications.message_ns;
    times.collective_ns = communications.collective_ns;
    times.schedule = user_schedule(std::move(lists), {.vocab_size = vocabulary ? kRows : 0,
                                                      .barriers = barriers_of(run.title)});
    return times;
}

TableCosts StepTimes::mean_costs() const {
    TableCosts costs;
    costs.stage_ns.resize(static_cast<size_t>(schedule.stages));
    costs.rank_ns.resize(static_cast<size_t>(schedule.ranks));
    const std::array<int64_t, kOpTraits.size()> none{};
    std::vector<std::array<int64_t, kOpTraits.size()>> stage_count(costs.stage_ns.size(), none);
    std::vector<std::array<int64_t, kOpTraits.size()>> rank_count(costs.rank_ns.size(), none);
    for (size_t rank = 0; rank < pass_ns.size(); ++rank) {
        for (size_t i = 0; i < pass_ns[rank].size(); ++i) {
            const Pass& pass = schedule.passes[rank][i];
            const auto op = static_cast<size_t>(pass.op);
            const bool of_stage = traits(pass.op).has_stage;
            (of_stage ? costs.stage_ns[pass.stage] : costs.rank_ns[rank])[op] +=
                pass_ns[rank][i] + late_ns[rank][i] + gap_ns[rank][i];
            ++(of_stage ? stage_count[pass.stage] : rank_count[rank])[op];
        }
    }
    const auto divide = [](auto& sums, const auto& counts) {
        for (size_t row = 0; row < sums.size(); ++row) {
            for (size_t op = 0; op < sums[row].size(); ++op) {
                // Schedules require passes to take time.
                if (counts[row][op] > 0) {
                    sums[row][op] = std::max<int64_t>(1, sums[row][op] / counts[row][op]);
                }
            }
        }
    };
    divide(costs.stage_ns, stage_count);
    divide(costs.rank_ns, rank_count);
    costs.latency_ns = message_ns;
    return costs;
}

int64_t replay_ns(const Schedule& of_passes, const CostModel& costs) {
    // Programs have vocabulary passes; those that nobody measured apart take no time.
    const Schedule schedule =
        of_passes.output.vocab_size() > 0
            ? of_passes
            : finish_schedule(of_passes, {.ranks = of_passes.ranks,
                                          .microbatches = of_passes.microbatches,
                                          .vocab_size = kRows});
    StepSizes sizes{.tokens = 1, .hidden = 1};
    sizes.stages.resize(static_cast<size_t>(schedule.stages));
    sizes.shards.resize(static_cast<size_t>(schedule.ranks));
    const std::vector<Program> programs =
        lower(schedule, sizes, costs, {.receive_ahead = kAsSoonAsSent});
    return simulate(programs, costs).summary.makespan_ns;
}

int64_t replay_own_ns(const StepTimes& times) {
    return replay_ns(times.schedule, OwnTimes(times));
}

}  // namespace vocabpipe::imported
