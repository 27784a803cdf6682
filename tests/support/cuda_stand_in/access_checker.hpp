// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "memory_range.hpp"

namespace cuda_stand_in {

/// Watches every access to memory that the threads of one block after another make on an OS thread,
/// and finds those that a GPU may make in either order. What orders two accesses of a kernel:
///
/// * the same thread makes both,
/// * both threads passed a block barrier in between, or, in one warp, a warp barrier. Shuffles and
///   other collectives of a warp exchange registers; the programming guide promises no more.
///
/// Blocks of a launch are never ordered. Shared memory is new in every block: what the block has
/// not written is nothing to read. Launches are not compared with each other: that is the order of
/// streams, which ThreadSanitizer checks.
///
/// The memory of one launch is looked at in units of two bytes: an access to a single byte counts
/// as one to its unit.
class AccessChecker {
public:
    enum class Access : unsigned char { read, write, atomic };
    enum class Fault : unsigned char { race, unwritten };
    struct Finding {
        Fault fault;
        Access earlier = Access::read;
        bool in_shared_memory = false;
        bool of_another_block = false;
        unsigned int earlier_thread = 0;  ///< linear index in its block
    };

    /// shared: where __shared__ variables of this OS thread lie. not_shared: other variables there.
    AccessChecker(Memory shared, std::vector<Memory> not_shared);

    void begin_launch(uint64_t blocks);
    void begin_block(unsigned int threads);
    /// Accesses from now on are this thread's; those to its stack are its own affair.
    void run_thread(unsigned int thread, Memory stack);
    void pass_block_barrier();
    void pass_warp_barrier(unsigned int warp);

    [[nodiscard]] std::optional<Finding> look_at(uintptr_t address, size_t bytes, Access access);

private:
    /// Who accessed, and when. From the lowest bit: thread (10 bits), the number of barriers that
    /// its warp (14) and its block (14) had passed, block since the start (25), atomic (1). 0:
    /// nobody.
    using Stamp = uint64_t;
    static constexpr unsigned int epoch_bits = 14;
    static constexpr unsigned int warp_epoch_at = 10;
    static constexpr unsigned int block_epoch_at = warp_epoch_at + epoch_bits;
    static constexpr unsigned int block_at = block_epoch_at + epoch_bits;
    static constexpr unsigned int atomic_at = 63;
    static constexpr uint64_t most_blocks = uint64_t{1} << (atomic_at - block_at);

    /// The last write, and of the reads since then two that stand for all: of two blocks if there
    /// are, else of two warps, else of two threads, the latest. Any write that races with one of
    /// the reads races with one of these.
    struct Unit {
        Stamp write;
        Stamp reads[2];
    };
    static constexpr uintptr_t page_units = 2048;
    using Page = std::array<Unit, page_units>;

    [[nodiscard]] Page& page(uintptr_t number);
    [[nodiscard]] bool ordered(Stamp earlier, bool shared) const;
    [[nodiscard]] std::optional<Finding> find(Unit& unit, bool shared, Access access) const;
    void keep_read(Unit& unit) const;
    void stamp();

    Memory shared_;
    std::vector<Memory> not_shared_;
    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
    struct Cached {
        uintptr_t number = 0;
        Page* page = nullptr;
    };
    std::array<Cached, 256> cache_{};
    Stamp now_ = 0;
    Memory stack_;
    unsigned int thread_ = 0;
    uint64_t block_ = 0;
    uint64_t first_block_ = 1;  ///< of the launch
    unsigned int block_epoch_ = 0;
    std::array<unsigned int, 32> warp_epochs_{};
};

}  // namespace cuda_stand_in
