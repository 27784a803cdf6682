// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/megatron_reader.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "src/train/data/check_range.hpp"
#include "src/train/data/data_file.hpp"
#include "src/train/data/file_tokens.hpp"
#include "src/train/data/identify_file.hpp"
#include "src/train/data/megatron_format.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

using std::to_string;

/// The checked .idx.
struct Index {
    TokenType type = TokenType::u8;
    int64_t sequences = 0, documents = 0, tokens = 0;
};

[[noreturn]] void fail(const DataFile& file, const std::string& reason) {
    throw InputFileError(file.path() + ": " + reason);
}

[[noreturn]] void fail_cut(const DataFile& idx, const std::string& expected) {
    fail(idx, "has " + to_string(idx.size()) + " bytes, but its header needs " + expected +
                  "; the file is damaged or incomplete; prepare it again");
}

TokenType read_type(const DataFile& idx) {
    const auto code = idx.load<uint8_t>(megatron::kTypeOffset);
    switch (code) {
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
        case 8:
            return static_cast<TokenType>(code);
        case 6:
        case 7:
            fail(idx, "token type " + to_string(code) + " is floating point (" +
                          (code == 6 ? "f64" : "f32") +
                          "), which cannot hold token ids; prepare the data with an integer type");
        default:
            fail(idx, "token type " + to_string(code) +
                          " is unknown (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16)");
    }
}

void check_head(const DataFile& idx) {
    const auto& magic = megatron::kMagic;
    const std::vector<std::byte> head = idx.head(magic.size());
    if (head.size() < magic.size() || std::memcmp(head.data(), magic.data(), magic.size()) != 0) {
        fail(idx, "is not an index of a Megatron dataset (no MMIDIDX magic) but " +
                      identify_file(idx).description);
    }
    if (idx.size() < megatron::kHeaderBytes) {
        fail_cut(idx, "at least " + to_string(megatron::kHeaderBytes));
    }
    const auto version = idx.load<uint64_t>(megatron::kVersionOffset);
    if (version != megatron::kVersion) {
        fail(idx, "version " + to_string(version) + " is not supported; expected 1");
    }
}

/// Checks that the sequences lie end to end; returns the sum of their lengths in tokens.
int64_t check_sequences(const DataFile& idx, uint64_t sequences, TokenType type) {
    const int64_t bytes = token_bytes(type);
    // Offsets are i64 bytes, so a sum of lengths beyond this cannot be in a file.
    const int64_t limit = std::numeric_limits<int64_t>::max() / bytes;
    FileArray<int32_t> lengths(idx, megatron::kHeaderBytes, sequences);
    FileArray<int64_t> offsets(idx, megatron::kHeaderBytes + 4 * sequences, sequences);
    int64_t tokens = 0;
    for (uint64_t i = 0; i < sequences; ++i) {
        const int32_t length = lengths.next();
        const int64_t offset = offsets.next();
        if (length < 0) {
            fail(idx, "sequence " + to_string(i) + " has length " + to_string(length));
        }
        if (offset != tokens * bytes) {
            fail(idx, "sequence " + to_string(i) + " starts at byte " + to_string(offset) +
                          " of the .bin, but the previous sequence ends at byte " +
                          to_string(tokens * bytes));
        }
        if (length > limit - tokens) {
            fail(idx, "sequence " + to_string(i) + " ends beyond any file length");
        }
        tokens += length;
    }
    return tokens;
}

void check_documents(const DataFile& idx, uint64_t sequences, uint64_t boundaries) {
    FileArray<int64_t> values(idx, megatron::kHeaderBytes + 12 * sequences, boundaries);
    int64_t before = 0;
    for (uint64_t i = 0; i < boundaries; ++i) {
        const int64_t value = values.next();
        const std::string which = "document boundary " + to_string(i) + " is " + to_string(value);
        if (i == 0 && value != 0) {
            fail(idx, which + ", but the first must be 0");
        }
        if (value < before) {
            fail(idx, which + ", which is less than the previous one (" + to_string(before) + ")");
        }
        if (std::cmp_greater(value, sequences)) {
            fail(idx, which + ", but there are only " + to_string(sequences) + " sequences");
        }
        before = value;
    }
    if (std::cmp_not_equal(before, sequences)) {
        fail(idx, "the last document boundary is " + to_string(before) + ", but must be " +
                      to_string(sequences) + ", the number of sequences");
    }
}

/// Multimodal sets mark their non-text sequences; such a sequence holds no token ids.
void check_modes(const DataFile& idx, uint64_t sequences, uint64_t start) {
    FileArray<int8_t> modes(idx, start, sequences);
    for (uint64_t i = 0; i < sequences; ++i) {
        const int8_t mode = modes.next();
        if (mode != 0) {
            fail(idx, "sequence " + to_string(i) + " has mode " + to_string(mode) +
                          "; multimodal datasets are not supported");
        }
    }
}

Index read_index(const DataFile& idx) {
    check_head(idx);
    Index index;
    index.type = read_type(idx);
    const auto sequences = idx.load<uint64_t>(megatron::kSequencesOffset);
    const auto boundaries = idx.load<uint64_t>(megatron::kBoundariesOffset);
    // Divides before it multiplies: the counts may be anything up to 2^64 - 1.
    const uint64_t body = idx.size() - megatron::kHeaderBytes;
    if (sequences > body / 12) {
        fail_cut(idx, "12 more per sequence for " + to_string(sequences) + " sequences");
    }
    if (boundaries > (body - 12 * sequences) / 8) {
        fail_cut(idx, "8 more per document boundary for " + to_string(boundaries) + " boundaries");
    }
    if (boundaries == 0) {
        fail(idx, "the document array is empty; it must hold at least the boundary 0");
    }
    const uint64_t expected = megatron::kHeaderBytes + 12 * sequences + 8 * boundaries;
    const bool modes = sequences > 0 && idx.size() == expected + sequences;
    if (idx.size() != expected && !modes) {
        fail_cut(idx, to_string(expected) + " for " + to_string(sequences) + " sequences and " +
                          to_string(boundaries) + " document boundaries");
    }
    index.sequences = static_cast<int64_t>(sequences);
    index.documents = static_cast<int64_t>(boundaries) - 1;
    index.tokens = check_sequences(idx, sequences, index.type);
    check_documents(idx, sequences, boundaries);
    if (modes) {
        check_modes(idx, sequences, expected);
    }
    return index;
}

/// The .bin, with the document boundaries of the checked .idx.
class MegatronTokens final : public TokenSource {
public:
    MegatronTokens(FileTokens tokens, DataFile idx)
        : tokens_(std::move(tokens)), idx_(std::move(idx)) {}

    [[nodiscard]] int64_t size() const override { return tokens_.size(); }
    void read(int64_t first, std::span<int32_t> out) const override { tokens_.read(first, out); }
    [[nodiscard]] TokenPlace place(int64_t index) const override { return tokens_.place(index); }
    [[nodiscard]] const TokenSourceInfo& info() const override { return tokens_.info(); }

    void read_document_starts(int64_t first, std::span<int64_t> out) const override {
        if (out.empty()) return;
        check_range("read_document_starts: documents", first, out.size(), info().documents + 1);
        const auto sequences = static_cast<uint64_t>(info().sequences);
        const uint64_t boundaries = megatron::kHeaderBytes + 12 * sequences;
        idx_.read(boundaries + 8 * static_cast<uint64_t>(first), std::as_writable_bytes(out));
        if (out.front() < 0 || !std::ranges::is_sorted(out) ||
            std::cmp_greater(out.back(), sequences)) {
            fail(idx_,
                 "its document boundaries changed after it was opened; do not change a file "
                 "during the run");
        }
        // A walk over the sequences from the first document to the last: they lie side by side.
        auto next = static_cast<uint64_t>(out.front());
        const uint64_t end = std::min(static_cast<uint64_t>(out.back()) + 1, sequences);
        FileArray<int64_t> offsets(idx_, megatron::kHeaderBytes + 4 * sequences + 8 * next,
                                   end - next);
        int64_t start = size();
        for (int64_t& document : out) {
            const auto sequence = static_cast<uint64_t>(document);
            if (sequence == sequences) start = size();
            for (; sequence < sequences && next <= sequence; ++next) {
                start = offsets.next() / token_bytes(info().type);
            }
            document = start;
        }
    }

private:
    FileTokens tokens_;
    DataFile idx_;
};

}  // namespace

std::unique_ptr<TokenSource> open_megatron(const std::string& prefix) {
    DataFile idx(prefix + ".idx");
    const Index index = read_index(idx);
    DataFile bin(prefix + ".bin");
    const int64_t bytes = index.tokens * token_bytes(index.type);
    if (std::cmp_not_equal(bin.size(), bytes)) {
        fail(bin, "has " + to_string(bin.size()) + " bytes, but " + idx.path() + " describes " +
                      to_string(index.tokens) + " tokens of type " +
                      std::string(token_type_name(index.type)) + ", which is " + to_string(bytes) +
                      " bytes; the two files do not belong together, or one is incomplete");
    }
    TokenSourceInfo info;
    info.name = prefix;
    info.index = idx.path();
    info.format = "Megatron indexed dataset";
    info.type = index.type;
    info.documents = index.documents;
    info.sequences = index.sequences;
    info.bytes = static_cast<int64_t>(idx.size());
    FileTokens tokens(std::move(info));
    tokens.append(std::move(bin), 0, index.tokens);
    return std::make_unique<MegatronTokens>(std::move(tokens), std::move(idx));
}

}  // namespace vocabpipe
