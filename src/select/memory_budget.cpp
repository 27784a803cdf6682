// SPDX-License-Identifier: Apache-2.0
#include "src/select/memory_budget.hpp"

#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe {

void MemoryBudget::take(uint64_t bytes, const char* what) {
    if (bytes > left()) {
        throw OutOfMemoryError(std::string(what) + " needs " + std::to_string(bytes) +
                               " bytes, but of --memory " + std::to_string(limit_) +
                               " bytes only " + std::to_string(left()) +
                               " are left; use a larger --memory, more --partitions or more ranks");
    }
    taken_ += bytes;
    peak_ = std::max(peak_, taken_);
}

MemoryLease::MemoryLease(MemoryBudget& budget, uint64_t bytes, const char* what)
    : budget_(budget), bytes_(bytes) {
    budget_.take(bytes, what);
}

}  // namespace vocabpipe
