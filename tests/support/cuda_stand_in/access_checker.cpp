// SPDX-License-Identifier: Apache-2.0
#include "access_checker.hpp"

#include <algorithm>

namespace cuda_stand_in {

namespace {

constexpr uintptr_t unit_bytes = 2;
constexpr unsigned int warp_size = 32;
constexpr size_t most_pages = 4096;  // 16 MiB of a kernel's memory, 200 MB here

}  // namespace

AccessChecker::AccessChecker(Memory shared, std::vector<Memory> not_shared)
    : shared_(shared), not_shared_(std::move(not_shared)) {}

void AccessChecker::begin_launch(uint64_t blocks) {
    if (block_ + blocks + 1 >= most_blocks || pages_.size() > most_pages) {
        pages_.clear();
        cache_ = {};
        block_ = 0;
    }
    first_block_ = block_ + 1;
}

void AccessChecker::begin_block(unsigned int threads) {
    ++block_;
    block_epoch_ = 0;
    std::fill_n(warp_epochs_.begin(), (threads + warp_size - 1) / warp_size, 0U);
}

void AccessChecker::run_thread(unsigned int thread, Memory stack) {
    thread_ = thread;
    stack_ = stack;
    stamp();
}

void AccessChecker::pass_block_barrier() {
    ++block_epoch_;
    stamp();
}

void AccessChecker::pass_warp_barrier(unsigned int warp) {
    ++warp_epochs_[warp];
    stamp();
}

void AccessChecker::stamp() {
    constexpr uint64_t epoch = (uint64_t{1} << epoch_bits) - 1;
    now_ = block_ % most_blocks << block_at | (block_epoch_ & epoch) << block_epoch_at |
           (warp_epochs_[thread_ / warp_size] & epoch) << warp_epoch_at | thread_;
}

AccessChecker::Page& AccessChecker::page(uintptr_t number) {
    Cached& cached = cache_[number % cache_.size()];
    if (cached.page == nullptr || cached.number != number) {
        auto& owned = pages_[number];
        if (owned == nullptr) {
            owned = std::make_unique<Page>();
        }
        cached = {.number = number, .page = owned.get()};
    }
    return *cached.page;
}

/// Whether what was done then surely came before what is done now, or does not matter.
bool AccessChecker::ordered(Stamp earlier, bool shared) const {
    const Stamp then = earlier & ~(Stamp{1} << atomic_at);
    if (then >> block_at != now_ >> block_at) {
        return shared || then >> block_at < first_block_;
    }
    const Stamp difference = then ^ now_;
    if (difference >> block_epoch_at != 0) {
        return true;
    }
    const Stamp threads = difference & ((Stamp{1} << warp_epoch_at) - 1);
    const bool same_warp = threads < warp_size;
    return threads == 0 || (same_warp && difference >> warp_epoch_at != 0);
}

std::optional<AccessChecker::Finding> AccessChecker::find(Unit& unit, bool shared,
                                                          Access access) const {
    const auto race_with = [&](Stamp earlier, Access how) -> std::optional<Finding> {
        if (earlier == 0 || ordered(earlier, shared)) {
            return std::nullopt;
        }
        return Finding{.fault = Fault::race,
                       .earlier = how,
                       .in_shared_memory = shared,
                       .of_another_block = (earlier << 1 >> 1) >> block_at != now_ >> block_at,
                       .earlier_thread =
                           static_cast<unsigned int>(earlier & ((Stamp{1} << warp_epoch_at) - 1))};
    };
    const bool atomically = unit.write >> atomic_at != 0;
    if (!(atomically && access == Access::atomic)) {
        if (auto finding = race_with(unit.write, atomically ? Access::atomic : Access::write)) {
            return finding;
        }
    }
    if (access == Access::read) {
        if (shared && (unit.write << 1 >> 1) >> block_at != now_ >> block_at) {
            return Finding{.fault = Fault::unwritten, .in_shared_memory = true};
        }
        keep_read(unit);
        return std::nullopt;
    }
    for (const Stamp read : unit.reads) {
        if (auto finding = race_with(read, Access::read)) {
            return finding;
        }
    }
    unit = {.write = now_ | Stamp{access == Access::atomic} << atomic_at, .reads = {0, 0}};
    return std::nullopt;
}

void AccessChecker::keep_read(Unit& unit) const {
    auto& [latest, other] = unit.reads;
    if (latest == now_) {
        return;
    }
    // How far apart two reads are: 0 not at all, else thread, warp, block. A read that a barrier
    // orders before all that follows no longer counts.
    const auto distance = [this](Stamp read) {
        if (read == 0 || read >> block_at < first_block_) {
            return 0;
        }
        if (read >> block_at != now_ >> block_at) {
            return 3;
        }
        if (read >> block_epoch_at != now_ >> block_epoch_at) {
            return 0;
        }
        const Stamp threads = (read ^ now_) & ((Stamp{1} << warp_epoch_at) - 1);
        return threads == 0 ? 0 : threads < warp_size ? 1 : 2;
    };
    if (distance(latest) >= distance(other)) {
        other = latest;
    }
    latest = now_;
}

std::optional<AccessChecker::Finding> AccessChecker::look_at(uintptr_t address, size_t bytes,
                                                             Access access) {
    if (bytes == 0 || stack_.has(address)) {
        return std::nullopt;
    }
    bool shared = shared_.has(address);
    for (const Memory& other : not_shared_) {
        shared = shared && !other.has(address);
    }
    const uintptr_t end = (address + bytes - 1) / unit_bytes + 1;
    for (uintptr_t at = address / unit_bytes; at < end;) {
        Page& units = page(at / page_units);
        const uintptr_t end_here = std::min(end, (at / page_units + 1) * page_units);
        for (; at < end_here; ++at) {
            if (auto finding = find(units[at % page_units], shared, access)) {
                return finding;
            }
        }
    }
    return std::nullopt;
}

}  // namespace cuda_stand_in
