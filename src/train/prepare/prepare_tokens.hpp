// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "src/train/data/megatron_writer.hpp"
#include "src/train/prepare/preparation_state.hpp"
#include "src/train/text/document_splitter.hpp"
#include "src/train/text/text_input.hpp"
#include "src/train/text/utf8_check.hpp"
#include "src/train/tokenizer/tokenizer.hpp"

namespace vocabpipe {

struct PreparationOptions {
    std::vector<TextInput> inputs;  ///< at least one; all of them chats, or none
    std::string output;             ///< prefix
    DocumentSeparator separator = DocumentSeparator::file;
    int64_t max_bad_lines = 0;  ///< lines of JSON without a document that may be left out
    int workers = 1;            ///< threads that encode
    /// Bytes of the model that was trained, which a preparation that goes on does not train again;
    /// may be empty.
    std::string trained_model;
    std::string arguments;                 ///< PreparationState::arguments
    std::optional<PreparationState> from;  ///< where a killed preparation goes on

    /// Time between two states. A kill loses this time; making a state takes as long as the disk
    /// takes for the tokens since the last one.
    std::chrono::milliseconds state_every{2000};

    std::function<void()> poll = [] {};  ///< called often; may throw to end the work
    /// Bytes of the files read, and tokens written so far.
    std::function<void(int64_t bytes, int64_t tokens)> progress = [](int64_t, int64_t) {};
    /// A bad line that is left out, "FILE line N: reason"; the first ten.
    std::function<void(const std::string& line)> bad_line = [](const std::string&) {};
    /// Called with what all text was, before anything appears; may throw to refuse it.
    std::function<void(const TextCheck& text)> check_text = [](const TextCheck&) {};
    /// Writes what lies beside the tokens, just before they appear; may throw.
    std::function<void()> publish_beside = [] {};
    /// Removes it if they do not appear.
    std::function<void()> remove_beside = [] {};
};

struct Prepared {
    MegatronTotals totals;
    TextCheck text;  ///< of plain text
    int64_t bad_lines = 0;
};

/// Encodes texts and writes PREFIX.bin, PREFIX.idx and, for chats, PREFIX.weights: all of them,
/// with what lies beside, or none. The files have the same bytes for every number of workers, and
/// whether or not the preparation was killed and went on.
///
/// Memory: text that waits is at most 4 MiB per worker and a line of 64 MiB at most, and tokens are
/// up to four times its bytes.
///
/// A kill leaves PREFIX.bin.partial and the like of all files, and the state. All
/// other ends remove them. InputFileError for a file that cannot be read, more bad lines than
/// max_bad_lines, and inputs without any text; OutputFileError; UsageError as MegatronWriter.
[[nodiscard]] Prepared prepare_tokens(const PreparationOptions& options,
                                      const Tokenizer& tokenizer);

}  // namespace vocabpipe
