// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/support/output_file.hpp"
#include "src/support/partial_file.hpp"
#include "src/train/data/loss_weights_writer.hpp"
#include "vocabpipe/token_type.hpp"

namespace vocabpipe {

struct MegatronTotals {
    int64_t documents = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;  // of all files
    TokenType type = TokenType::u16;
};

/// How far a set is written; made by MegatronWriter::sync(), and where another writer goes on.
struct MegatronPosition {
    int64_t documents = 0;
    int64_t tokens = 0;
    int64_t entries = 0;  ///< of PREFIX.idx.partial
    int64_t open = 0;     ///< tokens of the sequence that has not ended
    int64_t bytes = 0;    ///< of PREFIX.bin.partial
    LossWeightsPosition weights;
};

/// Writes PREFIX.bin and PREFIX.idx, Megatron's indexed dataset: u16 tokens for vocabularies below
/// 65,500, else i32; and PREFIX.weights, if tokens have loss weights. The files appear complete or
/// not at all, the .idx last. Until finish() returns there are PREFIX.bin.partial,
/// PREFIX.idx.partial (the lengths of sequences) and PREFIX.weights.partial, which the destructor
/// removes and a killed process leaves. Failures are OutputFileErrors. Memory: a few MiB, however
/// many documents there are.
class MegatronWriter {
public:
    /// Goes on at `from`, which needs the partial files of the writer that made it.
    /// UsageError if vocab_size is not in [1, 2^31 - 1], or another process writes to the prefix.
    MegatronWriter(const std::string& prefix, int64_t vocab_size,
                   std::optional<LossWeightType> loss_weights = {},
                   const MegatronPosition& from = {});

    /// Whether the partial files of `prefix` hold all that was written at `from`.
    [[nodiscard]] static bool can_go_on(const std::string& prefix, const MegatronPosition& from);

    /// Appends tokens to the current document. An id outside of the vocabulary is
    /// std::invalid_argument. With loss weights, those of the tokens are 1.
    void append(std::span<const int32_t> tokens);
    /// The same with a weight for each token, as LossWeightsWriter::append(); std::logic_error if
    /// the writer was made without a type for them.
    void append(std::span<const int32_t> tokens, std::span<const float> loss_weights);

    /// Ends the current document, which may be empty.
    void end_document();

    /// Makes everything so far durable.
    [[nodiscard]] MegatronPosition sync();

    /// Ends a document that has tokens, then writes and names all files. Call it once.
    MegatronTotals finish();

    [[nodiscard]] int64_t tokens() const { return position_.tokens; }

private:
    void append_tokens(std::span<const int32_t> tokens);
    void end_sequence(bool ends_document);
    void add_entry(int32_t entry);
    /// Calls `visit` for every entry.
    template <class Visit>
    void for_each_entry(const Visit& visit);
    void write_index(OutputFile& idx);

    int64_t vocab_size_;
    TokenType type_;
    MegatronPosition position_;
    std::string weights_path_;
    PartialFile bin_;
    std::optional<PartialFile> entries_;  // none after finish()
    std::optional<LossWeightsWriter> weights_;
    std::vector<uint16_t> narrow_;  // scratch
    std::vector<float> ones_;       // likewise
};

}  // namespace vocabpipe
