// SPDX-License-Identifier: Apache-2.0
#include "completion.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <utility>

#include "race_checker.hpp"

namespace cuda_stand_in {

void sleep_on(const std::atomic<uint32_t>& word, uint32_t expected) {
    const timespec limit{.tv_sec = 0, .tv_nsec = 50'000'000};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
}

void wake_all(const std::atomic<uint32_t>& word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

void Completion::reach() {
    time_ = Clock::now();
    reached_.store(1, std::memory_order_release);
    wake_all(reached_);
}

bool Completion::wait(const std::stop_token& stop) {
    while (!reached()) {
        if (stop.stop_requested()) {
            return false;
        }
        sleep_on(reached_, 0);
    }
    return true;
}

CompletionPointer CompletionPointer::make() {
    CompletionPointer pointer;
    pointer.point_ = new Completion;
    return pointer;
}

CompletionPointer::CompletionPointer(const CompletionPointer& other) : point_(other.point_) {
    if (point_ != nullptr) {
        const Unseen unseen;
        point_->owners_.fetch_add(1, std::memory_order_relaxed);
    }
}

CompletionPointer::CompletionPointer(CompletionPointer&& other) noexcept
    : point_(std::exchange(other.point_, nullptr)) {}

CompletionPointer& CompletionPointer::operator=(CompletionPointer other) noexcept {
    std::swap(point_, other.point_);
    return *this;
}

CompletionPointer::~CompletionPointer() {
    if (point_ != nullptr) {
        const Unseen unseen;
        if (point_->owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete point_;
        }
    }
}

}  // namespace cuda_stand_in
