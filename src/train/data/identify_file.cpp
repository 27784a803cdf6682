// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/identify_file.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace vocabpipe {

namespace {

using namespace std::string_view_literals;

constexpr size_t kHeadBytes = 4096;

constexpr const char* kPrepare =
    "create token files from text with: vocabpipe data prepare --input FILE --output PREFIX";
constexpr const char* kExport =
    "export the text and run: vocabpipe data prepare --input FILE --output PREFIX";
constexpr const char* kUnpack = "decompress it first";
constexpr const char* kRaw =
    "for token ids without a header, use --data-format raw-u16 or raw-u32; for text, run vocabpipe "
    "data prepare --input FILE --output PREFIX";
constexpr const char* kModel = "use the token shards, not a model file";

struct IntegerMagic {
    int32_t magic;
    const char* description;
    const char* remedy;
};

constexpr std::array<IntegerMagic, 8> kIntegerMagics{{
    {20240326, "an llm.c model checkpoint", kModel},
    {20240803, "an llm.c Llama model checkpoint", kModel},
    {20240327, "an llm.c debug state", kModel},
    {20240328, "an llm.c tokenizer", kModel},
    {20240527, "an llm.c optimizer state", kModel},
    {20240522, "an llm.c evaluation set",
     "evaluation sets hold multiple-choice examples; use the token shards"},
    {20240520, "an llm.c GPT-2 shard", "use it as the data path"},
    {20240801, "an llm.c Llama 3 shard", "use it as the data path"},
}};

struct TextMagic {
    std::string_view magic;
    const char* description;
    const char* remedy;
    bool binary;
};

constexpr std::array<TextMagic, 12> kTextMagics{{
    {"\x1f\x8b"sv, "gzip-compressed data", kUnpack, true},
    {"\x28\xb5\x2f\xfd"sv, "zstd-compressed data", kUnpack, true},
    {"\xfd"
     "7zXZ\0"sv,
     "xz-compressed data", kUnpack, true},
    {"BZh"sv, "bzip2-compressed data", kUnpack, true},
    {"PK\3\4"sv, "a zip archive (also .npz, .pt)", kUnpack, true},
    {"\x93NUMPY"sv, "a NumPy array",
     "write its elements with tofile() as uint16 and use --data-format raw-u16", false},
    {"BIN.TOK\n"sv, "an LLMQ token file",
     "strip its 1024-byte header and use --data-format raw-u32", false},
    {"PAR1"sv, "a Parquet file", kExport, true},
    {"ARROW1"sv, "an Arrow file", kExport, true},
    {"MMIDIDX\0\0"sv, "the index of a Megatron dataset",
     "use the prefix of the .idx and .bin files", false},
    {"{\""sv, "JSON text", kPrepare, false},
    {"[{"sv, "JSON text", kExport, false},
}};

/// True if the bytes read as UTF-8 text without control characters.
bool is_text(std::string_view head) {
    size_t continuation = 0;
    for (const char c : head) {
        const auto byte = static_cast<unsigned char>(c);
        if (continuation > 0) {
            if ((byte & 0xc0) != 0x80) {
                return false;
            }
            --continuation;
        } else if (byte >= 0xc2 && byte < 0xf5) {
            continuation = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
        } else if (byte >= 0x7f || (byte < 0x20 && !(byte >= '\t' && byte <= '\r'))) {
            return false;
        }
    }
    return true;
}

}  // namespace

FileIdentity identify_bytes(std::span<const std::byte> bytes) {
    const std::string_view head(reinterpret_cast<const char*>(bytes.data()),
                                std::min(bytes.size(), kHeadBytes));
    if (head.empty()) {
        return {"an empty file", kPrepare, false};
    }
    for (const TextMagic& magic : kTextMagics) {
        if (head.starts_with(magic.magic)) {
            return {magic.description, magic.remedy, magic.binary};
        }
    }
    if (head.size() >= sizeof(int32_t)) {
        int32_t value = 0;
        std::memcpy(&value, head.data(), sizeof value);
        for (const IntegerMagic& magic : kIntegerMagics) {
            if (magic.magic == value) {
                return {magic.description, magic.remedy, false};
            }
        }
    }
    if (is_text(head)) {
        return {"plain text", kPrepare, false};
    }
    std::string first;
    for (const char c : head.substr(0, 8)) {
        std::array<char, 4> hex{};
        std::snprintf(hex.data(), hex.size(), " %02x",
                      static_cast<unsigned>(static_cast<unsigned char>(c)));
        first += hex.data();
    }
    return {"an unknown format (first bytes" + first + ")", kRaw, false};
}

FileIdentity identify_file(const DataFile& file) {
    return identify_bytes(file.head(kHeadBytes));
}

}  // namespace vocabpipe
