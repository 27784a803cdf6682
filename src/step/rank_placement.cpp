// SPDX-License-Identifier: Apache-2.0
#include "src/step/rank_placement.hpp"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>

#include "src/support/control_groups.hpp"

namespace vocabpipe {

namespace {

struct DeviceWire {
    std::array<char, 256> name{};
    bool has_memory = false;
    Device::Memory memory;
};

}  // namespace

std::vector<RankPlacement> placements_of(std::span<const RankHome> ranks) {
    std::vector<RankPlacement> placements;
    for (const RankHome& rank : ranks) {
        RankPlacement placement{.host = rank.host.data(),
                                .cores = std::max(CPU_COUNT(&rank.cores), 1),
                                .ranks_sharing = 0,
                                .ranks_on_host = 0,
                                .local_rank = 0,
                                .ranks = static_cast<int>(ranks.size()),
                                .resident_bytes = rank.resident_bytes};
        int ranks_in_group = 0;
        for (const RankHome& other : ranks) {
            if (std::strcmp(other.host.data(), rank.host.data()) != 0) continue;
            if (&other < &rank) ++placement.local_rank;
            ++placement.ranks_on_host;
            if (CPU_EQUAL(&other.cores, &rank.cores)) ++placement.ranks_sharing;
            if (other.quota == rank.quota && other.group_of_quota == rank.group_of_quota) {
                ++ranks_in_group;
            }
        }
        // Even a rank with cores of its own shares the quota with its neighbors.
        if (rank.quota > 0 &&
            rank.quota * placement.ranks_sharing < placement.cores * ranks_in_group) {
            placement.cores = rank.quota;
            placement.ranks_sharing = ranks_in_group;
        }
        placements.push_back(placement);
    }
    return placements;
}

std::vector<RankPlacement> find_placements(Communicator& communicator, int64_t resident_bytes) {
    RankHome mine;
    mine.resident_bytes = resident_bytes;
    gethostname(mine.host.data(), mine.host.size() - 1);
    sched_getaffinity(0, sizeof mine.cores, &mine.cores);
    const ControlGroups groups = control_groups();
    if (groups.cpus) mine.quota = std::max(1, static_cast<int>(std::min(*groups.cpus, 1e6)));
    mine.group_of_quota = std::hash<std::string>()(groups.cpu_group);
    const auto parts = communicator.all_gather(std::as_bytes(std::span(&mine, 1)));
    std::vector<RankHome> all(parts.size());
    for (size_t i = 0; i < parts.size(); ++i) {
        std::memcpy(&all[i], parts[i].data(), sizeof(RankHome));
    }
    return placements_of(all);
}

void describe_devices(Communicator& communicator, const Device& mine,
                      std::vector<RankPlacement>& placements) {
    DeviceWire wire;
    mine.name().copy(wire.name.data(), wire.name.size() - 1);
    const std::optional<Device::Memory> memory = mine.memory();
    wire.has_memory = memory.has_value();
    wire.memory = memory.value_or(Device::Memory{});
    const auto parts = communicator.all_gather(std::as_bytes(std::span(&wire, 1)));
    for (size_t rank = 0; rank < parts.size(); ++rank) {
        DeviceWire one;
        std::memcpy(&one, parts[rank].data(), sizeof one);
        placements[rank].device = one.name.data();
        if (one.has_memory) placements[rank].memory = one.memory;
    }
}

}  // namespace vocabpipe
