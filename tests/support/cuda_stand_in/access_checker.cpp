// SPDX-License-Identifier: Apache-2.0
#include "access_checker.hpp"

#include <algorithm>
#include <utility>

namespace cuda_stand_in {

namespace {

constexpr uintptr_t unit_bytes = 2;
constexpr unsigned int warp_size = 32;
constexpr size_t most_pages = 4096;  // 16 MiB of a kernel's memory, 200 MB here

}  // namespace

void AccessChecker::begin_os_thread(Memory shared, std::vector<Memory> not_shared) {
    shared_ = shared;
    not_shared_ = std::move(not_shared);
}

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

bool AccessChecker::races(Stamp earlier, bool shared) const {
    return earlier != 0 && !ordered(earlier, shared);
}

bool AccessChecker::block_wrote(const Unit& unit) const {
    return (unit.write << 1 >> 1) >> block_at == now_ >> block_at;
}

bool AccessChecker::admit(Unit& unit, bool shared, Access access) const {
    // What this thread did before, in vain or not, it may do again.
    if (access == Access::read ? unit.reads[0] == now_
                               : access == Access::write && unit.write == now_ &&
                                     unit.reads[0] == 0 && unit.reads[1] == 0) {
        return true;
    }
    const bool atomically = unit.write >> atomic_at != 0;
    if (!(atomically && access == Access::atomic) && races(unit.write, shared)) {
        return false;
    }
    if (access == Access::read) {
        if (shared && !block_wrote(unit)) {
            return false;
        }
        keep_read(unit);
        return true;
    }
    if (races(unit.reads[0], shared) || races(unit.reads[1], shared)) {
        return false;
    }
    unit = {.write = now_ | Stamp{access == Access::atomic} << atomic_at, .reads = {0, 0}};
    return true;
}

AccessChecker::Finding AccessChecker::explain(const Unit& unit, bool shared, Access access) const {
    const auto race_with = [&](Stamp earlier, Access how) {
        return Finding{.fault = Fault::race,
                       .earlier = how,
                       .in_shared_memory = shared,
                       .of_another_block = (earlier << 1 >> 1) >> block_at != now_ >> block_at,
                       .earlier_thread =
                           static_cast<unsigned int>(earlier & ((Stamp{1} << warp_epoch_at) - 1))};
    };
    const bool atomically = unit.write >> atomic_at != 0;
    if (!(atomically && access == Access::atomic) && races(unit.write, shared)) {
        return race_with(unit.write, atomically ? Access::atomic : Access::write);
    }
    if (access == Access::read) {
        return {.fault = Fault::unwritten, .in_shared_memory = true};
    }
    return race_with(unit.reads[races(unit.reads[0], shared) ? 0 : 1], Access::read);
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

bool AccessChecker::look_at(uintptr_t address, size_t bytes, Access access) {
    if (bytes == 0 || stack_.has(address)) {
        return true;
    }
    const bool shared =
        shared_.has(address) && std::none_of(not_shared_.begin(), not_shared_.end(),
                                             [&](Memory other) { return other.has(address); });
    const uintptr_t end = (address + bytes - 1) / unit_bytes + 1;
    for (uintptr_t at = address / unit_bytes; at < end;) {
        Page& units = page(at / page_units);
        const uintptr_t end_here = std::min(end, (at / page_units + 1) * page_units);
        for (; at < end_here; ++at) {
            Unit& unit = units[at % page_units];
            if (!admit(unit, shared, access)) {
                found_ = explain(unit, shared, access);
                return false;
            }
        }
    }
    return true;
}

}  // namespace cuda_stand_in
