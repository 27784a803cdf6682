// SPDX-License-Identifier: Apache-2.0
#include "src/schedule/validate/parts.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace vocabpipe::validation {

namespace {

Violation of_schedule(std::string reason) {
    return {-1, -1, "", std::move(reason)};
}

std::optional<Violation> check_shard_map(const ShardMap& map, const char* name, int ranks) {
    const auto fault = [&](const std::string& what) {
        return of_schedule(std::string(name) + " shard map: " + what);
    };
    if (map.first_row.size() != static_cast<size_t>(ranks) + 1) {
        return fault("has " + std::to_string(map.first_row.size()) + " entries; " +
                     std::to_string(ranks) + " ranks need " + std::to_string(ranks + 1));
    }
    if (map.first_row.front() != 0) {
        return fault("starts at row " + std::to_string(map.first_row.front()) + ", expected row 0");
    }
    for (int rank = 0; rank < ranks; ++rank) {
        if (map.end(rank) < map.begin(rank)) {
            return fault("rank " + std::to_string(rank) + " ends at row " +
                         std::to_string(map.end(rank)) + ", before its first row " +
                         std::to_string(map.begin(rank)));
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<Violation> shape_violation(const Schedule& schedule) {
    const auto at_least_one = [](const char* what, int value) {
        return of_schedule(std::string(what) + " is " + std::to_string(value) +
                           "; must be at least 1");
    };
    if (schedule.ranks < 1) return at_least_one("ranks", schedule.ranks);
    if (schedule.stages < 1) return at_least_one("stages", schedule.stages);
    if (schedule.microbatches < 1) return at_least_one("microbatches", schedule.microbatches);
    if (schedule.stages > std::numeric_limits<uint16_t>::max()) {
        return of_schedule("stages is " + std::to_string(schedule.stages) +
                           "; must be at most 65535");
    }
    if (schedule.passes.size() != static_cast<size_t>(schedule.ranks)) {
        return of_schedule(std::to_string(schedule.passes.size()) + " lists of passes for " +
                           std::to_string(schedule.ranks) + " ranks");
    }
    if (schedule.rank_of_stage.size() != static_cast<size_t>(schedule.stages)) {
        return of_schedule("rank_of_stage has " + std::to_string(schedule.rank_of_stage.size()) +
                           " entries for " + std::to_string(schedule.stages) + " stages");
    }
    for (int stage = 0; stage < schedule.stages; ++stage) {
        const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
        if (rank < 0 || rank >= schedule.ranks) {
            return of_schedule("stage " + std::to_string(stage) + " is on rank " +
                               std::to_string(rank) + "; ranks are 0 to " +
                               std::to_string(schedule.ranks - 1));
        }
    }
    if (auto fault = check_shard_map(schedule.input, "input", schedule.ranks)) return fault;
    if (auto fault = check_shard_map(schedule.output, "output", schedule.ranks)) return fault;
    if (schedule.barriers > Barriers::two) return of_schedule("barriers has an unknown value");
    if (schedule.first_backward < 0 || schedule.first_backward >= schedule.stages) {
        return of_schedule("first_backward is " + std::to_string(schedule.first_backward) +
                           "; stages are 0 to " + std::to_string(schedule.stages - 1));
    }
    if (schedule.embedding_gradient && schedule.first_backward > 0) {
        return of_schedule(
            "embedding_gradient needs a backward of every stage, but first_backward is " +
            std::to_string(schedule.first_backward));
    }
    return std::nullopt;
}

}  // namespace vocabpipe::validation
