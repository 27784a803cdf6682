// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace vocabpipe {

/// Limits of a process's control groups, as set by containers, Slurm and systemd, in version 1 and
/// 2, including all visible parent groups.
struct ControlGroups {
    /// Bytes until the first memory limit, counting cached pages of files as free; none: no limit.
    std::optional<int64_t> memory_left;
    /// The smallest CPU quota in CPUs, such as 1.5; none: no quota.
    std::optional<double> cpus;
    /// The group with this quota, which its processes share.
    std::string cpu_group;
};

/// `process`: folder in /proc whose `cgroup` and `mountinfo` tell the groups.
[[nodiscard]] ControlGroups control_groups(const std::string& process = "/proc/self");

}  // namespace vocabpipe
