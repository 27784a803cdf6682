// SPDX-License-Identifier: Apache-2.0
#include "src/support/process_memory.hpp"

#include "src/support/control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace vocabpipe {

namespace {

/// Value of "Key:  123 kB" in a /proc file, in bytes; 0 if it is missing.
int64_t field(const char* file, const std::string& key) {
    std::ifstream in(file);
    std::string word;
    while (in >> word) {
        int64_t kib = 0;
        if (word == key && in >> kib) return kib * 1024;
        in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
    }
    return 0;
}

}  // namespace

ProcessMemory process_memory() {
    return {.resident = field("/proc/self/status", "VmRSS:"),
            .peak = field("/proc/self/status", "VmHWM:")};
}

int64_t available_memory() {
    int64_t available = field("/proc/meminfo", "MemAvailable:");
    if (available == 0) available = std::numeric_limits<int64_t>::max();
    return std::min(available, control_groups().memory_left.value_or(available));
}

}  // namespace vocabpipe
