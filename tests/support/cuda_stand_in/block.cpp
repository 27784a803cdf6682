// SPDX-License-Identifier: Apache-2.0
#include "block.hpp"

#include <algorithm>
#include <exception>
#include <string>

#include "function_name.hpp"
#include "sanitizers.hpp"
#include "stream.hpp"

constinit thread_local uint3 threadIdx{0, 0, 0};
constinit thread_local uint3 blockIdx{0, 0, 0};
constinit thread_local dim3 blockDim{1, 1, 1};
constinit thread_local dim3 gridDim{1, 1, 1};

void __syncthreads() {
    cuda_stand_in::BlockRunner::of_this_thread().block_barrier();
}

void __syncwarp(unsigned int mask) {
    cuda_stand_in::BlockRunner::of_this_thread().warp_barrier(mask);
}

namespace cuda_stand_in {

namespace {

constexpr unsigned int warp_size = 32;
constexpr unsigned int full_mask = 0xffffffffU;

template <typename T>
Memory memory_of(const T& variable) {
    return {.low = reinterpret_cast<uintptr_t>(&variable), .bytes = sizeof variable};
}

/// What the kernels see as their index is not theirs to share.
std::vector<Memory> index_variables() {
    return {memory_of(threadIdx), memory_of(blockIdx), memory_of(blockDim), memory_of(gridDim)};
}

/// "name, block (0, 0, 0), thread (3, 0, 0)"
std::string place(const KernelCall& call, uint3 thread) {
    const auto triple = [](uint3 v) {
        return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) +
               ")";
    };
    return "kernel " + function_name(call.kernel) + ", block " + triple(blockIdx) + ", thread " +
           triple(thread);
}

}  // namespace

constinit thread_local BlockRunner* watched_runner = nullptr;

uint64_t shuffle(Shuffle kind, unsigned int mask, uint64_t value, unsigned int operand, int width) {
    return BlockRunner::of_this_thread().shuffle(kind, mask, value, operand, width);
}

BlockRunner& BlockRunner::of_this_thread() {
    static thread_local BlockRunner runner;
    return runner;
}

BlockRunner::BlockRunner() : checker_(thread_local_variables(), index_variables()) {}

void BlockRunner::Queue::push(Thread* thread) {
    thread->next = nullptr;
    (last == nullptr ? first : last->next) = thread;
    last = thread;
}

BlockRunner::Thread* BlockRunner::Queue::pop() {
    Thread* const thread = first;
    if (thread != nullptr) {
        first = thread->next;
        last = first == nullptr ? nullptr : last;
    }
    return thread;
}

void BlockRunner::Queue::take(Queue& other) {
    if (other.first != nullptr) {
        (last == nullptr ? first : last->next) = other.first;
        last = other.last;
        other = {};
    }
}

void BlockRunner::run(const KernelCall& call, dim3 grid, dim3 block, uint3 block_index,
                      Order order) {
    gridDim = grid;
    blockDim = block;
    blockIdx = block_index;
    call_ = &call;
    order_ = order;
    total_ = block.x * block.y * block.z;
    started_ = ended_ = arrived_ = 0;
    warps_.resize((total_ + warp_size - 1) / warp_size);
    checker_.begin_block(total_);
    while (ended_ < total_) {
        running_ = next_thread();
        if (running_ == nullptr) {
            report_divergence();
        }
        main_.switch_to(running_->fiber);
    }
    watched_runner = nullptr;
    call_ = nullptr;
}

/// Those that can go on come first: a warp stays together until its next barrier of the block.
BlockRunner::Thread* BlockRunner::next_thread() {
    if (Thread* const thread = ready_.pop()) {
        return thread;
    }
    if (started_ == total_) {
        return nullptr;
    }
    if (Thread* const thread = idle_.pop()) {
        return thread;
    }
    threads_.push_back(std::make_unique<Thread>(*this));
    return threads_.back().get();
}

void BlockRunner::entry(void* runner) {
    auto& self = *static_cast<BlockRunner*>(runner);
    self.running_->fiber.entered();
    self.start_threads();
}

/// The life of a fiber: it runs threads that have not started, and rests while there are none.
void BlockRunner::start_threads() {
    Thread* const me = running_;
    for (;;) {
        while (started_ < total_ && ready_.first == nullptr) {
            const unsigned int count = started_++;
            me->number =
                (order_.first_thread + (order_.backwards ? total_ - 1 - count : count)) % total_;
            me->index = {me->number % blockDim.x, me->number / blockDim.x % blockDim.y,
                         me->number / (blockDim.x * blockDim.y)};
            goes_on(*me);
            try {
                call_->run(call_->call.get());
            } catch (const std::exception& error) {
                die("%s threw: %s", place(*call_, me->index).c_str(), error.what());
            }
            ++ended_;
        }
        idle_.push(me);
        running_ = ready_.pop();
        me->fiber.switch_to(running_ == nullptr ? main_ : running_->fiber);
    }
}

void BlockRunner::wait(Queue& queue, Waits waits) {
    Thread* const me = running_;
    me->waits = waits;
    queue.push(me);
    running_ = next_thread();
    me->fiber.switch_to(running_ == nullptr ? main_ : running_->fiber);
    me->waits = Waits::no;
    goes_on(*me);
}

void BlockRunner::goes_on(const Thread& thread) {
    threadIdx = thread.index;
    checker_.run_thread(thread.number, thread.fiber.stack());
    watched_runner = this;
}

void BlockRunner::require_kernel(const char* what) const {
    if (call_ == nullptr) {
        die("%s outside of a kernel", what);
    }
}

void BlockRunner::block_barrier() {
    require_kernel("__syncthreads()");
    if (++arrived_ < total_) {
        wait(at_barrier_, Waits::at_block_barrier);
        return;
    }
    arrived_ = 0;
    checker_.pass_block_barrier();
    ready_.take(at_barrier_);
}

unsigned int BlockRunner::lanes() const {
    return std::min(warp_size, total_ - running_->number / warp_size * warp_size);
}

BlockRunner::Warp& BlockRunner::arrive(const char* what, unsigned int mask,
                                       unsigned int operation) {
    require_kernel(what);
    Warp& warp = warps_[running_->number / warp_size];
    if (mask != full_mask) {
        die("%s: %s with mask %08x; the stand-in knows the full mask only",
            place(*call_, running_->index).c_str(), what, mask);
    }
    if (warp.arrived == 0) {
        warp.operation = operation;
    } else if (warp.operation != operation) {
        die("%s: %s while another lane of the warp waits in a different operation",
            place(*call_, running_->index).c_str(), what);
    }
    return warp;
}

void BlockRunner::leave_or_wait(Warp& warp, Waits waits) {
    if (++warp.arrived < lanes()) {
        wait(warp.waiting, waits);
        return;
    }
    warp.arrived = 0;
    ++warp.round;
    if (waits == Waits::at_warp_barrier) {
        checker_.pass_warp_barrier(running_->number / warp_size);
    }
    ready_.take(warp.waiting);
}

void BlockRunner::warp_barrier(unsigned int mask) {
    leave_or_wait(arrive("__syncwarp()", mask, 0), Waits::at_warp_barrier);
}

uint64_t BlockRunner::shuffle(Shuffle kind, unsigned int mask, uint64_t value, unsigned int operand,
                              int width) {
    constexpr const char* what = "a warp shuffle";
    const unsigned int segment = static_cast<unsigned int>(width);
    Warp& warp = arrive(what, mask, 1U + static_cast<unsigned int>(kind) + 16U * segment);
    if (lanes() < warp_size) {
        die("%s: %s in a warp of %u lanes: the mask names lanes that do not exist",
            place(*call_, running_->index).c_str(), what, lanes());
    }
    if (segment == 0 || segment > warp_size || (segment & (segment - 1)) != 0) {
        die("%s: %s of width %d; it must be a power of two up to 32",
            place(*call_, running_->index).c_str(), what, width);
    }
    const unsigned int lane = running_->number % warp_size;
    uint64_t* const values = warp.values[warp.round % 2];
    values[lane] = value;
    leave_or_wait(warp, Waits::at_shuffle);

    const unsigned int low = lane & ~(segment - 1);
    unsigned int source = lane;
    switch (kind) {
        case Shuffle::from_lane:
            source = low | (operand & (segment - 1));
            break;
        case Shuffle::from_lower:
            source = lane - low >= operand ? lane - operand : lane;
            break;
        case Shuffle::from_higher:
            source = operand < segment && lane + operand < low + segment ? lane + operand : lane;
            break;
        case Shuffle::butterfly:
            source = (lane ^ operand) < low + segment ? lane ^ operand : lane;
            break;
    }
    return values[source];
}

unsigned int BlockRunner::lane() const {
    require_kernel("an instruction of a warp");
    return running_->number % warp_size;
}

const std::array<BlockRunner::Operands, 32>& BlockRunner::exchange(const char* what,
                                                                   unsigned int instruction,
                                                                   const Operands& operands) {
    // Shuffles number theirs below this.
    constexpr unsigned int first_instruction = 1024;
    Warp& warp = arrive(what, full_mask, first_instruction + instruction);
    if (lanes() < warp_size) {
        die("%s: %s in a warp of %u lanes", place(*call_, running_->index).c_str(), what, lanes());
    }
    auto& round = warp.operands[warp.round % 2];
    round[lane()] = operands;
    leave_or_wait(warp, Waits::at_shuffle);
    return round;
}

void BlockRunner::look_at(uintptr_t address, size_t bytes, AccessChecker::Access access,
                          const void* code) {
    const auto found = checker_.look_at(address, bytes, access);
    if (!found) {
        return;
    }
    watched_runner = nullptr;
    using Access = AccessChecker::Access;
    const auto verb = [](Access how, const char* ending) {
        const char* const name = how == Access::read    ? "read"
                                 : how == Access::write ? "write"
                                                        : "add";
        return std::string(name) + ending;
    };
    const std::string what = place(*call_, running_->index) + " " + verb(access, "s") + " " +
                             std::to_string(bytes) + " bytes of " +
                             (found->in_shared_memory ? "shared" : "global") + " memory";
    const uintptr_t at = reinterpret_cast<uintptr_t>(code) - load_offset();
    if (found->fault == AccessChecker::Fault::unwritten) {
        die("%s that its block has not written (addr2line: 0x%lx)", what.c_str(), at);
    }
    const unsigned int other = found->earlier_thread;
    die("%s, in a race with the %s of thread (%u, %u, %u)%s: no barrier lies between "
        "(addr2line: 0x%lx)",
        what.c_str(), verb(found->earlier, "").c_str(), other % blockDim.x,
        other / blockDim.x % blockDim.y, other / (blockDim.x * blockDim.y),
        found->of_another_block ? " of another block" : "", at);
}

void BlockRunner::report_divergence() {
    unsigned int counts[4] = {};
    const Thread* example = nullptr;
    for (const auto& thread : threads_) {
        if (thread->waits != Waits::no) {
            ++counts[static_cast<size_t>(thread->waits)];
            example = thread.get();
        }
    }
    die("%s waits for threads that never come: of %u threads %u have ended, %u wait at "
        "__syncthreads(), %u at __syncwarp(), %u in a warp shuffle or an instruction of a warp",
        place(*call_, example == nullptr ? uint3{} : example->index).c_str(), total_, ended_,
        counts[1], counts[2], counts[3]);
}

}  // namespace cuda_stand_in
