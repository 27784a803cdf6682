// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// Memory of the host that stands for a device's. A workspace is large and used at its beginning
/// alone, so pages of a large block that nobody has written exist once for all: what costs is what
/// is touched. Under AddressSanitizer and ThreadSanitizer all memory is the heap's, which they
/// know.
namespace cuda_stand_in {

/// Where every block begins: what cudaMalloc of a current driver gives; 256 bytes are promised.
inline constexpr size_t host_memory_alignment = 512;

/// Fresh memory of 0xff bytes: NaN as fp32, bf16 and fp64, -1 as an integer. Null when there is
/// none.
[[nodiscard]] void* take_poisoned(size_t bytes);
/// Of a block of that size.
void give_back(void* address, size_t bytes);
/// What memset() does, to a part of a block of `block_bytes`.
void fill(void* address, int value, size_t bytes, size_t block_bytes);

}  // namespace cuda_stand_in
