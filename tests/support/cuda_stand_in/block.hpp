// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "access_checker.hpp"
#include "fiber.hpp"

namespace cuda_stand_in {

/// Runs the threads of one block after another on an OS thread. A thread runs until it ends, or
/// waits at a barrier or shuffle; the next one then starts on a fresh fiber. So a kernel that
/// never waits needs one fiber, and one that does needs one per thread.
///
/// A block in which some threads wait for others that have ended or wait elsewhere ends the
/// process with a message: the hardware hangs, or goes on with whatever it read. So does an access
/// to memory that no barrier orders after another thread's (AccessChecker).
class BlockRunner {
public:
    /// The runner of the calling OS thread.
    [[nodiscard]] static BlockRunner& of_this_thread();

    /// first_thread and backwards decide in which order threads start; results must not depend on
    /// it.
    struct Order {
        unsigned int first_thread = 0;
        bool backwards = false;
    };
    /// Before the blocks of a launch.
    void begin_launch(uint64_t blocks) { checker_.begin_launch(blocks); }
    void run(const KernelCall& call, dim3 grid, dim3 block, uint3 block_index, Order order);

    void block_barrier();
    void warp_barrier(unsigned int mask);
    [[nodiscard]] uint64_t shuffle(Shuffle kind, unsigned int mask, uint64_t value,
                                   unsigned int operand, int width);

    /// The lane of the running thread in its warp.
    [[nodiscard]] unsigned int lane() const;
    /// What a lane hands in for an instruction of the whole warp.
    using Operands = std::array<uint64_t, 6>;
    /// Hands `operands` in and waits for the other lanes; then those of all, until the lane's next
    /// exchange. `instruction` tells apart what lanes must not mix, from 1.
    [[nodiscard]] const std::array<Operands, 32>& exchange(const char* what,
                                                           unsigned int instruction,
                                                           const Operands& operands);

    /// The running thread is about to access memory; code is where.
    void look_at(uintptr_t address, size_t bytes, AccessChecker::Access access, const void* code);

    BlockRunner();
    BlockRunner(const BlockRunner&) = delete;
    BlockRunner& operator=(const BlockRunner&) = delete;

private:
    enum class Waits : unsigned char { no, at_block_barrier, at_warp_barrier, at_shuffle };
    struct Thread {
        explicit Thread(BlockRunner& runner) : fiber(&BlockRunner::entry, &runner) {}
        Fiber fiber;
        unsigned int number = 0;  ///< linear index in the block
        uint3 index{};
        Waits waits = Waits::no;
        Thread* next = nullptr;
    };
    /// First in, first out.
    struct Queue {
        Thread* first = nullptr;
        Thread* last = nullptr;
        void push(Thread* thread);
        Thread* pop();
        void take(Queue& other);
    };
    struct Warp {
        Queue waiting;
        unsigned int arrived = 0;
        unsigned int operation = 0;  ///< of the first lane that arrived: all must agree
        unsigned int round = 0;
        // Values of even and odd rounds: a lane may be one round ahead of another, never two.
        uint64_t values[2][32] = {};
        std::array<Operands, 32> operands[2] = {};  // likewise
    };

    static void entry(void* runner);
    void start_threads();
    void goes_on(const Thread& thread);
    [[nodiscard]] Thread* next_thread();
    void wait(Queue& queue, Waits waits);
    [[nodiscard]] Warp& arrive(const char* what, unsigned int mask, unsigned int operation);
    void leave_or_wait(Warp& warp, Waits waits);
    [[nodiscard]] unsigned int lanes() const;
    void require_kernel(const char* what) const;
    [[noreturn]] void report_divergence();

    AccessChecker checker_;
    Fiber main_;
    std::vector<std::unique_ptr<Thread>> threads_;
    Queue idle_;
    Queue ready_;
    Queue at_barrier_;
    std::vector<Warp> warps_;
    Thread* running_ = nullptr;
    const KernelCall* call_ = nullptr;
    Order order_;
    unsigned int total_ = 0;
    unsigned int started_ = 0;
    unsigned int ended_ = 0;
    unsigned int arrived_ = 0;
};

/// The runner of this OS thread while it runs a thread of a block, else null.
extern constinit thread_local BlockRunner* watched_runner;

}  // namespace cuda_stand_in
