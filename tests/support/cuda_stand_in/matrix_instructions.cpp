// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "block.hpp"
#include "include/cuda_stand_in/matrix_instructions.h"
#include "stream.hpp"

namespace cuda_stand_in {

namespace {

/// The low (0) or high (1) half of a word as bf16.
float half_of(uint64_t word, unsigned int half) {
    const auto bits = static_cast<uint32_t>(half == 0 ? word << 16 : word & 0xffff0000U);
    return std::bit_cast<float>(bits);
}

uint16_t element(uint64_t address, unsigned int column) {
    uint16_t value = 0;
    std::memcpy(&value, std::bit_cast<const unsigned char*>(address) + 2 * column, sizeof(value));
    return value;
}

}  // namespace

void mma_m16n8k16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    BlockRunner& runner = BlockRunner::of_this_thread();
    const unsigned int lane = runner.lane();
    // of the whole warp: rows of a two terms at a time, columns of b likewise
    const auto& words = runner.exchange("mma.sync", 1, {a[0], a[1], a[2], a[3], b0, b1});
    const unsigned int group = lane / 4, within = lane % 4;
    for (unsigned int term = 0; term < 16; ++term) {
        // Terms 2t, 2t + 1 and eight further are those of the lane t of a group.
        const unsigned int holder = term % 8 / 2, half = term % 2;
        const unsigned int further = term / 8;
        const auto& of_a = words[group * 4 + holder];
        for (unsigned int column = 0; column < 2; ++column) {
            const auto& of_b = words[(within * 2 + column) * 4 + holder];
            const float b = half_of(of_b[4 + further], half);
            c[column] += half_of(of_a[2 * further], half) * b;
            c[2 + column] += half_of(of_a[2 * further + 1], half) * b;
        }
    }
}

void require_aligned_row(const void* row) {
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
        die("ldmatrix: a row that is not 16-byte aligned");
    }
}

void exchange_rows(uint32_t (&words)[4], const void* row, bool transposes) {
    BlockRunner& runner = BlockRunner::of_this_thread();
    const unsigned int lane = runner.lane();
    const auto address = reinterpret_cast<uintptr_t>(row);
    const auto& rows = runner.exchange("ldmatrix", transposes ? 3 : 2, {address});
    for (unsigned int matrix = 0; matrix < 4; ++matrix) {
        uint32_t word = 0;
        for (unsigned int half = 0; half < 2; ++half) {
            const unsigned int along = lane % 4 * 2 + half, across = lane / 4;
            const uint64_t of_row = rows[matrix * 8 + (transposes ? along : across)][0];
            word |= uint32_t{element(of_row, transposes ? across : along)} << (16 * half);
        }
        words[matrix] = word;
    }
}

}  // namespace cuda_stand_in
