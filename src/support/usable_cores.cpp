// SPDX-License-Identifier: Apache-2.0
#include "src/support/usable_cores.hpp"

#include "src/support/control_groups.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <thread>

namespace vocabpipe {

int usable_cores() {
    cpu_set_t cores;  // too small for more than 1024 cores, which is an error
    const int allowed = ::sched_getaffinity(0, sizeof cores, &cores) == 0
                            ? CPU_COUNT(&cores)
                            : std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
    const double quota = control_groups().cpus.value_or(allowed);
    return std::clamp(static_cast<int>(std::ceil(quota)), 1, allowed);
}

}  // namespace vocabpipe
