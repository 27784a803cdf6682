// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace vocabpipe::megatron {

// PREFIX.idx, little-endian, no padding: magic, u64 version, u8 token type, u64 sequences S,
// u64 document boundaries D, then S i32 lengths in tokens, S i64 offsets in bytes, D i64 boundaries
// as sequence indices, and for multimodal sets S i8 modes.
inline constexpr std::array<unsigned char, 9> kMagic{'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
inline constexpr uint64_t kVersion = 1;
inline constexpr uint64_t kVersionOffset = 9;
inline constexpr uint64_t kTypeOffset = 17;
inline constexpr uint64_t kSequencesOffset = 18;
inline constexpr uint64_t kBoundariesOffset = 26;
inline constexpr uint64_t kHeaderBytes = 34;

/// Vocabularies below this are stored as u16, others as i32.
inline constexpr int64_t kFirstVocabularyOfI32 = 65500;

}  // namespace vocabpipe::megatron
