// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace vocabpipe {

/// CRC-32C (Castagnoli; RFC 3720, appendix B.4) of `bytes`, continuing from `before`, the checksum
/// of the bytes before them. Uses SSE 4.2 where the processor has it.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

/// The same, computed with tables.
[[nodiscard]] uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before = 0);

/// The checksum of A followed by B, from both checksums and the length of B: ranks combine parts.
[[nodiscard]] uint32_t crc32c_combine(uint32_t a, uint32_t b, uint64_t bytes_of_b);

}  // namespace vocabpipe
