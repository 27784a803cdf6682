// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

/// The memory of one rank's part of a selection: allocations are counted, and refused beyond the
/// limit.
class MemoryBudget {
public:
    /// `limit`: bytes; 0: no limit.
    explicit MemoryBudget(uint64_t limit = 0) : limit_(limit) {}

    [[nodiscard]] uint64_t limit() const { return limit_; }
    [[nodiscard]] uint64_t peak() const { return peak_; }
    /// Bytes that may still be taken; UINT64_MAX without a limit.
    [[nodiscard]] uint64_t left() const {
        return limit_ == 0 ? UINT64_MAX : (limit_ > taken_ ? limit_ - taken_ : 0);
    }

private:
    friend class MemoryLease;
    void take(uint64_t bytes, const char* what);
    void give_back(uint64_t bytes) { taken_ -= bytes; }

    uint64_t limit_, taken_ = 0, peak_ = 0;
};

/// Bytes taken from a budget; the destructor gives them back.
class MemoryLease {
public:
    /// OutOfMemoryError, with the purpose `what`, if the budget does not have them.
    MemoryLease(MemoryBudget& budget, uint64_t bytes, const char* what);
    ~MemoryLease() { budget_.give_back(bytes_); }
    MemoryLease(const MemoryLease&) = delete;
    MemoryLease& operator=(const MemoryLease&) = delete;

private:
    MemoryBudget& budget_;
    uint64_t bytes_;
};

}  // namespace vocabpipe
