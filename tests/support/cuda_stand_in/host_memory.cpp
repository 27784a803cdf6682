// SPDX-License-Identifier: Apache-2.0
#include "host_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "sanitizers.hpp"

namespace cuda_stand_in {

namespace {

constexpr size_t pattern_bytes = size_t{1} << 20;
const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));

bool is_large(size_t bytes) {
    return !(CUDA_STAND_IN_ASAN || CUDA_STAND_IN_TSAN) && bytes >= pattern_bytes;
}

size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/// A file of 0xff bytes, in memory; -1 if there can be none.
int pattern() {
    static const int file = [] {
        const int made = memfd_create("poison", MFD_CLOEXEC);
        const std::vector<unsigned char> bytes(pattern_bytes, 0xff);
        const bool written = made >= 0 && write(made, bytes.data(), bytes.size()) ==
                                              static_cast<ssize_t>(bytes.size());
        return written ? made : -1;
    }();
    return file;
}

/// The pattern again and again, in place of what was there: a page is copied when it is written.
bool map_pattern(char* low, size_t bytes) {
    for (size_t at = 0; at < bytes; at += pattern_bytes) {
        if (mmap(low + at, std::min(pattern_bytes, bytes - at), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED, pattern(), 0) == MAP_FAILED) {
            return false;
        }
    }
    return true;
}

/// Zeros, which the kernel makes when they are touched.
bool map_zeros(char* low, size_t bytes) {
    return mmap(low, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                0) != MAP_FAILED;
}

void* take_large(size_t bytes) {
    void* const block = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED || map_pattern(static_cast<char*>(block), bytes)) {
        return block == MAP_FAILED ? nullptr : block;
    }
    munmap(block, bytes);
    return nullptr;
}

}  // namespace

void* take_poisoned(size_t bytes) {
    if (is_large(bytes)) {
        return take_large(round_up(bytes, page_bytes));
    }
    void* const address = std::aligned_alloc(
        host_memory_alignment, round_up(std::max<size_t>(bytes, 1), host_memory_alignment));
    if (address != nullptr) {
        std::memset(address, 0xff, bytes);
    }
    return address;
}

void give_back(void* address, size_t bytes) {
    if (is_large(bytes)) {
        munmap(address, round_up(bytes, page_bytes));
    } else {
        std::free(address);
    }
}

void fill(void* address, int value, size_t bytes, size_t block_bytes) {
    auto* const low = static_cast<char*>(address);
    char* const high = low + bytes;
    const int byte = value & 0xff;
    if (is_large(block_bytes) && is_large(bytes) && (byte == 0 || byte == 0xff)) {
        const auto number = reinterpret_cast<uintptr_t>(low);
        char* const first = low + (round_up(number, page_bytes) - number);
        const size_t whole = static_cast<size_t>(high - first) / page_bytes * page_bytes;
        if (byte == 0 ? map_zeros(first, whole) : map_pattern(first, whole)) {
            std::memset(low, value, static_cast<size_t>(first - low));
            std::memset(first + whole, value, static_cast<size_t>(high - first) - whole);
            return;
        }
    }
    std::memset(address, value, bytes);
}

}  // namespace cuda_stand_in
