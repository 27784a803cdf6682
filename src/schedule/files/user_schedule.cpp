// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/files/user_schedule.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace vocabpipe {

namespace files {

Schedule inferred_schedule(std::vector<std::vector<Pass>> passes) {
    Schedule schedule;
    schedule.ranks = static_cast<int>(passes.size());
    for (const std::vector<Pass>& list : passes) {
        for (const Pass& pass : list) {
            if (traits(pass.op).has_stage) {
                schedule.stages = std::max(schedule.stages, pass.stage + 1);
            }
            const uint32_t microbatch = std::min(pass.microbatch, kLastMicrobatch);
            schedule.microbatches =
                std::max(schedule.microbatches, static_cast<int>(microbatch) + 1);
        }
    }
    constexpr int kNowhere = -1;
    schedule.rank_of_stage.assign(static_cast<size_t>(schedule.stages), kNowhere);
    for (size_t rank = 0; rank < passes.size(); ++rank) {
        for (const Pass& pass : passes[rank]) {
            if (!traits(pass.op).has_stage) continue;
            int& owner = schedule.rank_of_stage[pass.stage];
            if (owner == kNowhere) owner = static_cast<int>(rank);
        }
    }
    std::replace(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(), kNowhere, 0);
    schedule.input = schedule.output = ShardMap::even(0, schedule.ranks);
    schedule.passes = std::move(passes);
    return schedule;
}

namespace {

std::optional<Violation> find_scattered_stage(const Schedule& schedule) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const std::vector<Pass>& list = schedule.passes[static_cast<size_t>(rank)];
        for (size_t i = 0; i < list.size(); ++i) {
            if (!traits(list[i].op).has_stage || list[i].stage >= schedule.stages) continue;
            const int owner = schedule.rank_of_stage[list[i].stage];
            if (owner == rank) continue;
            return Violation{rank, static_cast<int>(i), to_string(list[i]),
                             "belongs to a stage on rank " + std::to_string(owner) +
                                 "; a stage must be on one rank"};
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<Violation> find_user_violation(const Schedule& schedule) {
    if (auto violation = find_scattered_stage(schedule)) return violation;
    return find_violation(schedule);
}

}  // namespace files

namespace {

bool has_pass(const std::vector<Pass>& list, Op first, Op second) {
    return std::any_of(list.begin(), list.end(),
                       [&](const Pass& pass) { return pass.op == first || pass.op == second; });
}

/// The rows split evenly over the ranks that run one of the two kinds of passes.
ShardMap rows_of(const Schedule& schedule, Op first, Op second, int64_t vocab_size) {
    std::vector<bool> owns;
    for (const auto& list : schedule.passes) owns.push_back(has_pass(list, first, second));
    const auto owners = static_cast<int>(std::count(owns.begin(), owns.end(), true));
    if (owners == 0) return ShardMap::even(0, schedule.ranks);
    if (vocab_size < owners || vocab_size > int64_t{1} << 40) {
        throw UsageError("vocab_size " + std::to_string(vocab_size) + ": " +
                         std::to_string(owners) + " ranks run " + std::string(traits(first).name) +
                         " or " + std::string(traits(second).name) + ", so it must be from " +
                         std::to_string(owners) + " to 2^40");
    }
    const ShardMap even = ShardMap::even(vocab_size, owners);
    ShardMap map{{0}};
    int before = 0;
    for (const bool owner : owns) {
        before += owner ? 1 : 0;
        map.first_row.push_back(even.first_row[static_cast<size_t>(before)]);
    }
    return map;
}

}  // namespace

Schedule user_schedule(std::vector<std::vector<Pass>> passes, const UserScheduleOptions& options) {
    if (passes.empty()) validate(Schedule{});  // no ranks
    Schedule schedule = files::inferred_schedule(std::move(passes));
    schedule.input = rows_of(schedule, Op::E, Op::G, options.vocab_size);
    schedule.output = rows_of(schedule, Op::S, Op::T, options.vocab_size);
    schedule.barriers = options.barriers;
    if (auto violation = files::find_user_violation(schedule)) {
        throw ScheduleError(*std::move(violation));
    }
    return schedule;
}

}  // namespace vocabpipe
