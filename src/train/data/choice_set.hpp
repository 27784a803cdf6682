// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vocabpipe {

/// Limits that a choice set must keep.
struct ChoiceLimits {
    int64_t vocab_size = 0;  ///< all tokens must be below it
    int64_t seq_length = 0;  ///< context and completion, but for the last token, must fit
};

/// A multiple-choice evaluation set such as HellaSwag: each example is a context with several
/// completions, one of which is right. Opening it checks the whole file.
///
/// File (llm.c's, dev/data/data_common.py): 256 i32, of which [0] the magic 20240522, [1] the
/// version 1, [2] the number of examples, [3] the bytes of the longest one, the rest 0; then per
/// example u16: 65535, bytes of the example, its index, the label, the number of completions; the
/// context's length and tokens; each completion's length and tokens. Little-endian.
class ChoiceSet {
public:
    /// InputFileError with file, example, value and limit.
    ChoiceSet(std::string path, const ChoiceLimits& limits);

    struct Example {
        int label = 0;  ///< index of the right completion
        std::span<const uint16_t> context;
        std::vector<std::span<const uint16_t>> completions;
    };

    [[nodiscard]] const std::string& path() const { return path_; }
    /// Spans point into this object.
    [[nodiscard]] const std::vector<Example>& examples() const { return examples_; }
    /// All numbers of all examples, as in the file.
    [[nodiscard]] std::span<const uint16_t> stream() const { return stream_; }

private:
    [[noreturn]] void fail(const std::string& what) const;
    void read(const ChoiceLimits& limits);
    void check_tokens(const std::string& where, std::span<const uint16_t> tokens,
                      int64_t vocab_size) const;

    std::string path_;
    std::vector<uint16_t> stream_;  ///< behind the header
    std::vector<Example> examples_;
};

}  // namespace vocabpipe
