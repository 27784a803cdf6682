// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device.hpp"
#include "vocabpipe/world.hpp"

#include <sched.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Where a rank runs.
struct RankPlacement {
    std::string host;
    int cores = 1;          ///< that this rank may use, or CPU time of as many if a quota is less
    int ranks_sharing = 1;  ///< ranks that may use the same cores or quota
    int ranks_on_host = 1;
    int local_rank = 0;                    ///< among the ranks on its host
    int ranks = 1;                         ///< of the world
    int64_t resident_bytes = 0;            ///< of its process, before the run allocated any
    std::string device = "host";           ///< Device::name()
    std::optional<Device::Memory> memory;  ///< of the device, before anything was allocated
    /// Cores divided by the ranks that share them. More threads than cores would be far slower, not
    /// just a little.
    [[nodiscard]] int threads() const {
        return cores / ranks_sharing > 0 ? cores / ranks_sharing : 1;
    }
};

/// What a rank knows of its place, as bytes that every rank gets.
struct RankHome {
    std::array<char, 256> host{};
    cpu_set_t cores{};
    int quota = 0;              ///< whole CPUs; 0: none
    size_t group_of_quota = 0;  ///< equal for the ranks that share it
    int64_t resident_bytes = 0;
};

/// The placement of every rank, by rank.
[[nodiscard]] std::vector<RankPlacement> placements_of(std::span<const RankHome> ranks);

/// The placement of every rank, by rank. `resident_bytes`: of this rank's process. Collective.
/// Cores come from the affinity mask: mpirun binds small worlds to one core per rank.
[[nodiscard]] std::vector<RankPlacement> find_placements(Communicator& communicator,
                                                         int64_t resident_bytes = 0);
/// Adds name and memory of the ranks' devices. Collective.
void describe_devices(Communicator& communicator, const Device& mine,
                      std::vector<RankPlacement>& placements);

}  // namespace vocabpipe
