// SPDX-License-Identifier: Apache-2.0
#include "src/train/data/choice_set.hpp"

#include "src/train/data/data_file.hpp"
#include "src/train/data/identify_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <utility>

namespace vocabpipe {

namespace {

using std::to_string;

constexpr int32_t kMagic = 20240522;
constexpr int32_t kVersion = 1;
constexpr uint64_t kSetHeaderBytes = 1024;
constexpr uint16_t kStart = 65535;
constexpr size_t kBefore = 6;  // start, bytes, index, label, completions, context's length

}  // namespace

ChoiceSet::ChoiceSet(std::string path, const ChoiceLimits& limits) : path_(std::move(path)) {
    read(limits);
}

void ChoiceSet::fail(const std::string& what) const {
    throw InputFileError("--multiple-choice-path " + path_ + ": " + what);
}

void ChoiceSet::read(const ChoiceLimits& limits) {
    const DataFile file(path_);
    if (file.size() < sizeof(int32_t) || file.load<int32_t>(0) != kMagic) {
        fail("is not an llm.c evaluation set but " + identify_file(file).description);
    }
    if (file.size() < kSetHeaderBytes) {
        fail("has " + to_string(file.size()) +
             " bytes, but the header alone has 1024; the file is incomplete");
    }
    if (const auto version = file.load<int32_t>(4); version != kVersion) {
        fail("version " + to_string(version) + " is not supported; expected " +
             to_string(kVersion));
    }
    const auto count = file.load<int32_t>(8);
    if (count < 1) fail("the header declares " + to_string(count) + " examples");
    const auto longest_told = file.load<int32_t>(12);
    const uint64_t bytes = file.size() - kSetHeaderBytes;
    if (bytes % sizeof(uint16_t) != 0) fail("ends within a 16-bit number; the file is damaged");
    stream_.resize(bytes / sizeof(uint16_t));
    file.read(kSetHeaderBytes, std::as_writable_bytes(std::span(stream_)));

    std::span<const uint16_t> rest(stream_);
    int64_t longest = 0;
    for (int32_t index = 0; index < count; ++index) {
        const std::string where = "example " + to_string(index);
        const auto damaged = [&](const std::string& what) {
            fail(where + " " + what + "; the file is damaged");
        };
        if (rest.size() < kBefore) {
            fail("ends within " + where + " of " + to_string(count) + "; the file is incomplete");
        }
        if (rest[0] != kStart) damaged("begins with " + to_string(rest[0]) + ", expected 65535");
        const size_t words = rest[1] / sizeof(uint16_t);
        if (rest[1] % sizeof(uint16_t) != 0 || words < kBefore) {
            damaged("has " + to_string(rest[1]) + " bytes");
        }
        if (words > rest.size()) {
            fail("ends within " + where + " of " + to_string(count) + "; the file is incomplete");
        }
        // llm.c's 16 bits, which also limit the number of examples.
        if (rest[2] != index) damaged("has index " + to_string(rest[2]));
        longest = std::max(longest, int64_t{rest[1]});
        std::span<const uint16_t> body = rest.subspan(3, words - 3);
        rest = rest.subspan(words);
        const auto take = [&](size_t n) {
            if (n > body.size()) damaged("ends before its tokens");
            const auto part = body.first(n);
            body = body.subspan(n);
            return part;
        };
        Example example;
        example.label = take(1).front();
        const int completions = take(1).front();
        if (completions < 2) damaged("has " + to_string(completions) + " completions");
        if (example.label >= completions) {
            damaged("has label " + to_string(example.label) + ", but only " +
                    to_string(completions) + " completions");
        }
        example.context = take(take(1).front());
        if (example.context.empty()) damaged("has no context");
        check_tokens(where, example.context, limits.vocab_size);
        for (int c = 0; c < completions; ++c) {
            example.completions.push_back(take(take(1).front()));
            const auto& completion = example.completions.back();
            if (completion.empty()) damaged("has an empty completion");
            check_tokens(where, completion, limits.vocab_size);
            const size_t tokens = example.context.size() + completion.size();
            if (std::cmp_greater(tokens, limits.seq_length + 1)) {
                fail(where + " has " + to_string(tokens) + " tokens, but --seq-length " +
                     to_string(limits.seq_length) + " has room for only " +
                     to_string(limits.seq_length + 1) + "; use a larger --seq-length");
            }
        }
        if (!body.empty()) damaged("has " + to_string(body.size()) + " extra numbers");
        examples_.push_back(std::move(example));
    }
    if (!rest.empty()) {
        fail("has " + to_string(rest.size() * sizeof(uint16_t)) + " bytes after its " +
             to_string(count) + " examples; the file is damaged");
    }
    if (longest != longest_told) {
        fail("the longest example has " + to_string(longest) + " bytes, but the header says " +
             to_string(longest_told) + "; the file is damaged");
    }
}

void ChoiceSet::check_tokens(const std::string& where, std::span<const uint16_t> tokens,
                             int64_t vocab_size) const {
    const auto largest = std::max_element(tokens.begin(), tokens.end());
    if (largest == tokens.end() || *largest < vocab_size) return;
    fail(where + " has token " + to_string(*largest) + ", but --vocab-size " +
         to_string(vocab_size) + " allows only 0 to " + to_string(vocab_size - 1) +
         "; it was made with another tokenizer");
}

}  // namespace vocabpipe
