// SPDX-License-Identifier: Apache-2.0
#include "src/train/measure/process_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace vocabpipe {

namespace {

/// Value of "Key:  123 kB" in a /proc file, in bytes; -1 where it is missing.
int64_t field(const char* file, const std::string& key) {
    std::ifstream in(file);
    std::string word;
    while (in >> word) {
        int64_t kib = 0;
        if (word == key && in >> kib) return kib * 1024;
        in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return -1;
}

/// A number in a cgroup file; -1 where there is none ("max", or no such file).
int64_t number(const std::string& file) {
    std::ifstream in(file);
    int64_t value = -1;
    return in >> value ? value : -1;
}

/// Pages of files, which the cgroup gives up when it needs room: those of a checkpoint that was
/// just verified may be most of what is in use.
int64_t page_cache(const std::string& file) {
    std::ifstream in(file);
    int64_t bytes = 0;
    std::string key;
    for (int64_t value = 0; in >> key >> value;) {
        if (key == "active_file" || key == "inactive_file") bytes += value;
    }
    return bytes;
}

}  // namespace

ProcessMemory process_memory() {
    return {.resident = field("/proc/self/status", "VmRSS:"),
            .peak = field("/proc/self/status", "VmHWM:")};
}

int64_t available_memory() {
    int64_t available = field("/proc/meminfo", "MemAvailable:");
    if (available < 0) available = std::numeric_limits<int64_t>::max();
    const int64_t left = left_in_cgroup("/sys/fs/cgroup");
    return left >= 0 ? std::min(available, left) : available;
}

int64_t left_in_cgroup(const std::string& folder) {
    const int64_t limit = number(folder + "/memory.max");
    const int64_t used = number(folder + "/memory.current");
    if (limit < 0 || used < 0) return -1;
    const int64_t kept = std::max<int64_t>(used - page_cache(folder + "/memory.stat"), 0);
    return std::max<int64_t>(limit - kept, 0);
}

}  // namespace vocabpipe
