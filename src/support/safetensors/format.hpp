// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe {

/// Element types of safetensors files, by their names in the header.
enum class StoredType : uint8_t {
    BOOL,
    U8,
    I8,
    F8_E5M2,
    F8_E4M3,
    I16,
    U16,
    F16,
    BF16,
    I32,
    U32,
    F32,
    F64,
    I64,
    U64
};
[[nodiscard]] std::string_view name_of(StoredType type);
[[nodiscard]] std::optional<StoredType> stored_type_from(std::string_view name);
[[nodiscard]] uint64_t item_size(StoredType type);

/// One tensor of a file, row-major.
struct StoredTensor {
    std::string name;
    StoredType type = StoredType::F32;
    std::vector<int64_t> shape;
    uint64_t begin = 0, end = 0;  ///< bytes, from the start of the file
};

/// A name from a file, made fit for a line of text: without control characters, and short.
[[nodiscard]] std::string readable(const std::string& name);

/// "[2, 3]".
[[nodiscard]] std::string shape_text(const std::vector<int64_t>& shape);

/// Largest header that all readers of the format accept.
inline constexpr uint64_t kMostHeaderBytes = 100'000'000;

}  // namespace vocabpipe
