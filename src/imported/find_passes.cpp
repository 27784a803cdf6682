// SPDX-License-Identifier: Apache-2.0
#include "src/imported/clock_offsets.hpp"
#include "src/imported/measured_run.hpp"
#include "src/imported/rank_reader.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/user_schedule.hpp"
#include "vocabpipe/validate.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace vocabpipe::imported {

namespace {

using RankSteps = std::vector<std::vector<MeasuredPass>>;

RankSteps read_rank(RankRanges& rank, const RangeRules& rules, const ReadOptions& options,
                    int number) {
    std::ranges::stable_sort(rank.ranges, {}, &NamedRange::begin_ns);
    RankReader reader(rules, options, number);
    try {
        for (const NamedRange& range : rank.ranges) reader.take(range);
    } catch (const InputFileError& error) {
        throw InputFileError(rank.file + ": " + error.what());
    }
    RankSteps steps = std::move(reader).steps();
    if (steps.empty()) {
        const std::string example =
            rank.ranges.empty()
                ? "no range"
                : "no pass among ranges such as \"" + rank.ranges.front().name.substr(0, 60) + "\"";
        throw InputFileError(rank.file + ": has " + example + " by the rules " + rules.name +
                             "; use --rules FILE with the names of its passes");
    }
    return steps;
}

/// A rank runs one pass after the other. Clocks that are read or written in single precision say
/// otherwise by some ns, and passes that share a GPU by more: each moment then counts to the first.
void end_overlaps(MeasuredStep& step) {
    for (std::vector<MeasuredPass>& list : step) {
        for (size_t i = 1; i < list.size(); ++i) {
            list[i].begin_ns = std::max(list[i].begin_ns, list[i - 1].end_ns);
            list[i].end_ns = std::max(list[i].end_ns, list[i].begin_ns);
        }
    }
}

/// The passes that steps of a rank have, whatever their order.
std::set<std::tuple<Op, uint16_t, uint32_t>> passes_of(const std::vector<MeasuredPass>& step) {
    std::set<std::tuple<Op, uint16_t, uint32_t>> keys;
    for (const MeasuredPass& one : step) {
        keys.emplace(one.pass.op, one.pass.stage, one.pass.microbatch);
    }
    return keys;
}

/// [step] Whether the rank has as many passes as in the step of its most passes.
std::vector<bool> whole_steps(const RankSteps& steps) {
    size_t most = 0;
    for (const std::vector<MeasuredPass>& step : steps) most = std::max(most, step.size());
    std::vector<bool> whole;
    for (const std::vector<MeasuredPass>& step : steps) whole.push_back(step.size() == most);
    return whole;
}

/// Stages, ranks and microbatches of a step; refuses what no pipeline can run.
void describe(MeasuredRun& run, const std::vector<RankRanges>& files) {
    std::vector<std::vector<Pass>> lists;
    for (const std::vector<MeasuredPass>& list : run.steps.front()) {
        std::vector<Pass>& passes = lists.emplace_back();
        for (const MeasuredPass& one : list) passes.push_back(one.pass);
    }
    try {
        const Schedule schedule = user_schedule(std::move(lists));
        run.stages = schedule.stages;
        run.microbatches = schedule.microbatches;
        run.rank_of_stage = schedule.rank_of_stage;
    } catch (const ScheduleError& error) {
        const auto rank = static_cast<size_t>(std::max(error.violation().rank, 0));
        throw InputFileError((rank < files.size() ? files[rank].file : files.front().file) +
                             ": its passes are no step of a pipeline: " + error.what() +
                             "; give the traces of all ranks, of whole steps");
    }
}

}  // namespace

MeasuredRun find_passes(std::vector<RankRanges> files, const RangeRules& rules,
                        const ReadOptions& options) {
    if (files.empty()) throw UsageError("FILES: are required; use one of every rank");
    MeasuredRun run;
    std::vector<RankSteps> of_rank;
    std::vector<std::vector<bool>> whole;
    size_t count = 0, least = SIZE_MAX;
    for (size_t rank = 0; rank < files.size(); ++rank) {
        of_rank.push_back(read_rank(files[rank], rules, options, static_cast<int>(rank)));
        whole.push_back(whole_steps(of_rank.back()));
        run.hosts.push_back(files[rank].host);
        count = std::max(count, of_rank.back().size());
        least = std::min(least, of_rank.back().size());
    }
    for (size_t step = 0; step < least; ++step) {
        const auto has_all = [&](const std::vector<bool>& of) { return of[step]; };
        if (!std::ranges::all_of(whole, has_all)) continue;
        MeasuredStep& taken = run.steps.emplace_back();
        for (RankSteps& steps : of_rank) taken.push_back(std::move(steps[step]));
        end_overlaps(taken);
        for (size_t rank = 0; rank < taken.size(); ++rank) {
            if (passes_of(taken[rank]) == passes_of(run.steps.front()[rank])) continue;
            throw InputFileError(files[rank].file + ": step " + std::to_string(step) +
                                 " has other passes than the first; record steps of one kind");
        }
    }
    run.left_out = static_cast<int>(count - run.steps.size());
    if (run.steps.empty()) {
        throw InputFileError(files.front().file +
                             ": no step is whole on all ranks; record whole steps");
    }
    describe(run, files);
    run.title = std::to_string(run.ranks()) + " ranks, " + std::to_string(run.microbatches) +
                " microbatches, imported by the rules " + rules.name;
    correct_clocks(run);
    return run;
}

}  // namespace vocabpipe::imported
