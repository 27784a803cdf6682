// SPDX-License-Identifier: Apache-2.0
// cgroups(7): /proc/PID/cgroup has a line "ID:CONTROLLERS:PATH" for each hierarchy, without
// controllers for version 2. The folder of its files is in mountinfo (proc_pid_mountinfo(5)). A
// container may have mounted only a part of a hierarchy, or live in a namespace whose root is its
// own group.
#include "src/support/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace vocabpipe {

namespace {

/// A hierarchy's mount: which group is visible in which folder.
struct Mount {
    std::string root;   ///< the group that is mounted
    std::string point;  ///< the folder of that group
    bool unified = false;
    std::string options;  ///< with the controllers of version 1
};

/// mountinfo writes a space as \040.
std::string unescaped(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            out += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::vector<Mount> mounts_of(const std::string& process) {
    std::vector<Mount> mounts;
    std::ifstream in(process + "/mountinfo");
    for (std::string line; std::getline(in, line);) {
        // ID PARENT DEVICE ROOT POINT OPTIONS [OPTIONAL...] - TYPE SOURCE SUPER_OPTIONS
        const size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        std::istringstream before(line.substr(0, dash)), behind(line.substr(dash + 3));
        std::string id, parent, device, type, source;
        Mount mount;
        before >> id >> parent >> device >> mount.root >> mount.point;
        behind >> type >> source >> mount.options;
        if (type != "cgroup" && type != "cgroup2") continue;
        mount.unified = type == "cgroup2";
        mount.root = unescaped(mount.root);
        mount.point = unescaped(mount.point);
        mounts.push_back(std::move(mount));
    }
    return mounts;
}

bool has_word(std::string_view list, std::string_view word) {
    while (!list.empty()) {
        const size_t end = std::min(list.find(','), list.size());
        if (list.substr(0, end) == word) return true;
        list.remove_prefix(std::min(end + 1, list.size()));
    }
    return false;
}

/// The folders of the group `path` and then of its parents, up to the mount.
std::vector<std::string> folders(const Mount& mount, const std::string& path) {
    std::string below;
    if (mount.root == "/") {
        below = path;
    } else if ((path + "/").starts_with(mount.root + "/")) {
        below = path.substr(mount.root.size());
    }  // else: of another namespace; only the mount itself is visible
    if (below == "/" || below.starts_with("/..")) below.clear();
    std::vector<std::string> found;
    while (!below.empty()) {
        found.push_back(mount.point + below);
        below.erase(below.rfind('/'));
    }
    found.push_back(mount.point);
    return found;
}

/// The number at the beginning of a file; none if it begins with a word ("max") or is missing.
std::optional<int64_t> number(const std::string& file) {
    std::ifstream in(file);
    int64_t value = 0;
    return in >> value ? std::optional(value) : std::nullopt;
}

/// Bytes of the keys of memory.stat that count cached pages of files. The group gives them up when
/// it needs memory; a checkpoint that was just verified may be most of the memory in use. Version 1
/// adds the groups below as total_...
int64_t pages_of_files(const std::string& file) {
    std::ifstream in(file);
    int64_t own = 0, total = 0;
    std::string key;
    for (int64_t value = 0; in >> key >> value;) {
        if (key == "active_file" || key == "inactive_file") own += value;
        if (key == "total_active_file" || key == "total_inactive_file") total += value;
    }
    return std::max(own, total);
}

void add_memory(ControlGroups& all, const std::string& folder, bool unified) {
    const auto limit = number(folder + (unified ? "/memory.max" : "/memory.limit_in_bytes"));
    const auto used = number(folder + (unified ? "/memory.current" : "/memory.usage_in_bytes"));
    // Without a limit, version 1 reports the largest multiple of a page.
    constexpr int64_t kNone = INT64_MAX / 2;
    if (!limit || !used || *limit < 0 || *limit > kNone) return;
    const int64_t kept = std::max<int64_t>(*used - pages_of_files(folder + "/memory.stat"), 0);
    const int64_t left = std::max<int64_t>(*limit - kept, 0);
    all.memory_left = std::min(all.memory_left.value_or(left), left);
}

void add_cpus(ControlGroups& all, const std::string& folder, bool unified) {
    double quota = 0, period = 0;
    if (unified) {
        std::ifstream in(folder + "/cpu.max");  // "max 100000" without a quota
        if (!(in >> quota >> period)) return;
    } else {
        quota = static_cast<double>(number(folder + "/cpu.cfs_quota_us").value_or(-1));
        period = static_cast<double>(number(folder + "/cpu.cfs_period_us").value_or(0));
    }
    if (!(quota > 0 && period > 0)) return;
    const double cpus = quota / period;
    if (all.cpus && *all.cpus <= cpus) return;
    all.cpus = cpus;
    all.cpu_group = folder;
}

}  // namespace

ControlGroups control_groups(const std::string& process) {
    ControlGroups all;
    const std::vector<Mount> mounts = mounts_of(process);
    std::ifstream in(process + "/cgroup");
    for (std::string line; std::getline(in, line);) {
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string path = line.substr(second + 1);
        const bool unified = controllers.empty();
        for (const Mount& mount : mounts) {
            const auto holds = [&](const char* controller) {
                return unified ? mount.unified
                               : !mount.unified && has_word(controllers, controller) &&
                                     has_word(mount.options, controller);
            };
            for (const std::string& folder : folders(mount, path)) {
                if (holds("memory")) add_memory(all, folder, unified);
                if (holds("cpu")) add_cpus(all, folder, unified);
            }
        }
    }
    return all;
}

}  // namespace vocabpipe
