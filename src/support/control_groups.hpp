// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// What the control groups of a process allow: those of containers, Slurm and systemd, of version 1
/// and 2, each with all groups above it that can be seen.
struct ControlGroups {
    /// Bytes until the first memory limit, once pages of files are given up; none: no limit.
    std::optional<int64_t> memory_left;
    /// Time of CPUs per time, of the smallest quota, 1.5 for one; none: no quota.
    std::optional<double> cpus;
    /// The group that has this quota: processes with the same one share it.
    std::string cpu_group;
};

/// `process`: its folder of /proc, whose `cgroup` and `mountinfo` say where groups are.
[[nodiscard]] ControlGroups control_groups(const std::string& process = "/proc/self");

}  // namespace vocabpipe
