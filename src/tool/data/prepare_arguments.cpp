// SPDX-License-Identifier: Apache-2.0
#include "src/tool/data/prepare_arguments.hpp"

#include <algorithm>
#include <set>

#include "src/train/tokenizer/byte_tokenizer.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe::tool {

namespace {

/// The prefix, even if one of the two files was named.
std::string output_prefix(const std::string& output) {
    std::string prefix = output;
    if (prefix.ends_with(".bin") || prefix.ends_with(".idx")) {
        prefix.resize(prefix.size() - 4);
    }
    if (prefix.empty() || prefix.ends_with('/')) {
        throw UsageError("--output " + output +
                         ": is a folder; use a prefix, such as data/mytext for data/mytext.bin and "
                         "data/mytext.idx");
    }
    return prefix;
}

/// Keys become parts of file names where there are several.
void check_keys(const PrepareArguments& options) {
    if (options.json_keys.size() == 1) return;
    const std::string about = options.keys_text() + ": ";
    std::set<std::string> seen;
    for (const std::string& key : options.json_keys) {
        if (!seen.insert(key).second) throw UsageError(about + "has " + key + " twice");
        if (key.find('/') == std::string::npos) continue;
        throw UsageError(about +
                         "files have the names of several keys, and a name has no /; "
                         "prepare " +
                         key + " alone");
    }
    if (options.trains()) {
        throw UsageError(about +
                         "--tokenizer sentencepiece would train a vocabulary for each; train it on "
                         "one key, and use that --tokenizer-model for all");
    }
}

}  // namespace

bool PrepareArguments::keeps_bytes() const {
    return tokenizer == "bytes" || (tokenizer.empty() && tokenizer_model.empty());
}

bool PrepareArguments::trains() const {
    return tokenizer == "sentencepiece" && tokenizer_model.empty();
}

std::string PrepareArguments::keys_text() const {
    std::string text = "--json-keys";
    for (const std::string& key : json_keys) text += " " + key;
    return text;
}

void PrepareArguments::check() const {
    check_keys(*this);
    const bool model_given = !tokenizer_model.empty();
    if (tokenizer == "bytes" && model_given) {
        throw UsageError("--tokenizer-model: requires --tokenizer sentencepiece, got bytes");
    }
    const bool bytes = keeps_bytes();
    if (bytes && vocab_size != 0 && vocab_size != ByteTokenizer::kVocabSize) {
        throw UsageError("--vocab-size " + std::to_string(vocab_size) +
                         ": the bytes tokenizer has 257 ids; remove --vocab-size or use "
                         "--tokenizer sentencepiece");
    }
    if (!bytes && !model_given && vocab_size == 0) {
        throw UsageError(
            "--tokenizer sentencepiece: requires --vocab-size N to train a vocabulary, or "
            "--tokenizer-model FILE to use one");
    }
}

std::vector<PrepareArguments> PrepareArguments::of_keys() const {
    std::vector<PrepareArguments> all;
    for (const std::string& key : json_keys) {
        all.push_back(*this);
        all.back().output = output_prefix(output);
        if (json_keys.size() > 1) all.back().output += "_" + key + "_document";
        all.back().json_keys = {key};
    }
    return all;
}

}  // namespace vocabpipe::tool
