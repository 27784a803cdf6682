// SPDX-License-Identifier: Apache-2.0
// .npy, NumPy's array files: numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Element types that are supported, all little-endian.
enum class NpyType : uint8_t { f2, f4, f8, i4, i8, u4 };
/// The type's name in a header: "<f4".
[[nodiscard]] std::string_view descr_of(NpyType type);
[[nodiscard]] uint64_t item_size(NpyType type);

/// A checked header: the elements, in C order, end where the file ends.
struct NpyHeader {
    NpyType type = NpyType::f4;
    std::vector<int64_t> shape;
    uint64_t data_begin = 0;  ///< bytes before the first element

    [[nodiscard]] int64_t elements() const;
};

/// Limit; headers of numeric arrays are shorter.
inline constexpr uint64_t kMostNpyHeaderBytes = uint64_t{1} << 16;

/// `head`: the first bytes of a file of `file_bytes` bytes, at least kMostNpyHeaderBytes if it has
/// them. Formats 1.0, 2.0 and 3.0. InputFileError "PATH: what; remedy" for other types, other
/// orders, and all that the format does not allow.
[[nodiscard]] NpyHeader parse_npy_header(std::span<const std::byte> head, uint64_t file_bytes,
                                         const std::string& path);
/// All bytes before the elements, in format 1.0.
[[nodiscard]] std::string npy_header(NpyType type, const std::vector<int64_t>& shape);

}  // namespace vocabpipe
