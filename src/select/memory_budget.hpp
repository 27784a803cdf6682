// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vocabpipe {

/// The bytes that one rank's part of a selection holds: counted where they are allocated, and
/// refused where they would be more than was allowed.
class MemoryBudget {
public:
    /// `limit`: bytes; 0: any number.
    explicit MemoryBudget(uint64_t limit = 0) : limit_(limit) {}

    [[nodiscard]] uint64_t limit() const { return limit_; }
    [[nodiscard]] uint64_t peak() const { return peak_; }
    /// What may still be taken; the largest number if anything may.
    [[nodiscard]] uint64_t left() const {
        return limit_ == 0 ? UINT64_MAX : (limit_ > taken_ ? limit_ - taken_ : 0);
    }

private:
    friend class MemoryLease;
    void take(uint64_t bytes, const char* what);
    void give_back(uint64_t bytes) { taken_ -= bytes; }

    uint64_t limit_, taken_ = 0, peak_ = 0;
};

/// Bytes of a budget that are given back with the object.
class MemoryLease {
public:
    /// OutOfMemoryError if they are not left; `what` they are for.
    MemoryLease(MemoryBudget& budget, uint64_t bytes, const char* what);
    ~MemoryLease() { budget_.give_back(bytes_); }
    MemoryLease(const MemoryLease&) = delete;
    MemoryLease& operator=(const MemoryLease&) = delete;

private:
    MemoryBudget& budget_;
    uint64_t bytes_;
};

}  // namespace vocabpipe
