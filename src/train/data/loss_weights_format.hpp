// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe {

/// The type of loss weights on disk.
enum class LossWeightType : uint32_t {
    u8 = 1,    ///< 0 to 255: masks, and small integers
    fp16 = 2,  ///< IEEE half, 0 to 65504
};

/// Bytes of one weight.
[[nodiscard]] constexpr int64_t loss_weight_bytes(LossWeightType type) {
    return type == LossWeightType::u8 ? 1 : 2;
}
/// "u8" or "fp16".
[[nodiscard]] constexpr std::string_view to_string(LossWeightType type) {
    return type == LossWeightType::u8 ? "u8" : "fp16";
}

namespace loss_weights {

// PREFIX.weights, or FILE.weights beside tokens without an index; little-endian, no padding: a
// head, a weight for every token, and a tail, so that a writer need not know the number of tokens
// before.
inline constexpr std::array<char, 8> kMagic{'V', 'P', 'W', 'E', 'I', 'G', 'H', 'T'};
inline constexpr uint32_t kVersion = 1;

struct Head {
    std::array<char, 8> magic = kMagic;
    uint32_t version = kVersion;
    uint32_t type = 0;  ///< LossWeightType
};
struct Tail {
    uint64_t count = 0;     ///< weights
    uint32_t checksum = 0;  ///< CRC-32C of the weights' bytes; 0: not given
    uint32_t reserved = 0;
};
static_assert(sizeof(Head) == 16 && sizeof(Tail) == 16);

/// The path beside the tokens that a source calls `name`.
[[nodiscard]] inline std::string path_beside(const std::string& name) {
    return name + ".weights";
}

}  // namespace loss_weights

}  // namespace vocabpipe
