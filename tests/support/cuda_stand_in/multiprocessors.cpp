// SPDX-License-Identifier: Apache-2.0
#include "multiprocessors.hpp"

#include <atomic>
#include <map>
#include <mutex>

#include "control.hpp"
#include "race_checker.hpp"

namespace cuda_stand_in {

namespace {

/// Few, so that kernels which size their grids by the device stay small.
constexpr int usual_multiprocessors = 4;

struct Multiprocessors {
    std::atomic<int> count{usual_multiprocessors};
    std::mutex mutex;
    std::map<int, int> held;  ///< by device
};

Multiprocessors& all() {
    static auto* const everything = new Multiprocessors;
    return *everything;
}

void hold(int device, int count) {
    const UnseenLock lock(all().mutex);
    all().held[device] += count;
}

}  // namespace

void set_multiprocessors(int count) {
    all().count.store(count > 0 ? count : usual_multiprocessors, std::memory_order_relaxed);
}

int multiprocessors() {
    return all().count.load(std::memory_order_relaxed);
}

HeldMultiprocessors::HeldMultiprocessors(int device, int count) : device_(device), count_(count) {
    hold(device_, count_);
}

HeldMultiprocessors::~HeldMultiprocessors() {
    hold(device_, -count_);
}

int held_multiprocessors(int device) {
    const UnseenLock lock(all().mutex);
    return all().held[device];
}

}  // namespace cuda_stand_in
