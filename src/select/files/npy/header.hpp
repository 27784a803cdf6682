// SPDX-License-Identifier: Apache-2.0
// .npy, the array files of NumPy: numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Elements that are read and written, all little-endian.
enum class NpyType : uint8_t { f2, f4, f8, i4, i8, u4 };
/// As in a header: "<f4".
[[nodiscard]] std::string_view descr_of(NpyType type);
[[nodiscard]] uint64_t item_size(NpyType type);

/// What the beginning of a file says, checked: the elements, in C order, end where the file ends.
struct NpyHeader {
    NpyType type = NpyType::f4;
    std::vector<int64_t> shape;
    uint64_t data_begin = 0;  ///< bytes before the first element

    [[nodiscard]] int64_t elements() const;
};

/// Longer ones are no headers of arrays of numbers.
inline constexpr uint64_t kMostNpyHeaderBytes = uint64_t{1} << 16;

/// `head`: the first bytes of a file of `file_bytes`, at least kMostNpyHeaderBytes if it has them.
/// Formats 1.0, 2.0 and 3.0. InputFileError "PATH: what; remedy" for other types, other orders, and
/// everything that the format does not allow.
[[nodiscard]] NpyHeader parse_npy_header(std::span<const std::byte> head, uint64_t file_bytes,
                                         const std::string& path);
/// All that precedes the elements, in format 1.0.
[[nodiscard]] std::string npy_header(NpyType type, const std::vector<int64_t>& shape);

}  // namespace vocabpipe
