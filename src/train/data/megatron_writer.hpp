// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/support/output_file.hpp"
#include "src/train/data/loss_weights_writer.hpp"
#include "vocabpipe/token_type.hpp"

namespace vocabpipe {

struct MegatronTotals {
    int64_t documents = 0;
    int64_t tokens = 0;
    int64_t bytes = 0;  // of all files
    TokenType type = TokenType::u16;
};

/// Writes PREFIX.bin and PREFIX.idx, Megatron's indexed dataset: u16 tokens for vocabularies below
/// 65,500, else i32; and PREFIX.weights, if tokens have loss weights. The files appear complete or
/// not at all, the .idx last; until finish() returns there are only temporary names, which the
/// destructor removes. Failures are OutputFileErrors. Memory: 20 bytes per document.
class MegatronWriter {
public:
    /// UsageError if vocab_size is not in [1, 2^31 - 1].
    MegatronWriter(const std::string& prefix, int64_t vocab_size,
                   std::optional<LossWeightType> loss_weights = {});

    /// Appends tokens to the current document. An id outside of the vocabulary is
    /// std::invalid_argument. With loss weights, those of the tokens are 1.
    void append(std::span<const int32_t> tokens);
    /// The same with a weight for each token, as LossWeightsWriter::append(); std::logic_error if
    /// the writer was made without a type for them.
    void append(std::span<const int32_t> tokens, std::span<const float> loss_weights);

    /// Ends the current document, which may be empty.
    void end_document();

    /// Ends a document that has tokens, then writes and names all files. Call it once.
    MegatronTotals finish();

private:
    void append_tokens(std::span<const int32_t> tokens);
    void end_sequence();
    void write_index();
    void write(const void* data, size_t bytes);

    int64_t vocab_size_;
    std::string weights_path_;
    OutputFile bin_, idx_;
    std::optional<LossWeightsWriter> weights_;
    MegatronTotals totals_;
    std::vector<int32_t> lengths_;     // tokens of each sequence
    std::vector<int64_t> boundaries_;  // sequences before each document, and the total
    int32_t open_ = 0;                 // tokens of the current sequence
    std::vector<uint16_t> narrow_;     // scratch
    std::vector<float> ones_;          // likewise
};

}  // namespace vocabpipe
