// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/corpus.hpp"

#include "src/support/parse_number.hpp"
#include "vocabpipe/error.hpp"

namespace vocabpipe {

namespace {

constexpr const char* kData = "corpus.data";
constexpr const char* kSeqLength = "corpus.seq_length";
constexpr const char* kSamples = "corpus.samples";

[[noreturn]] void refuse(
    const std::string& a, const std::string& b, const std::string& what,
    const std::string& remedy = "use files that were made from the same data and --seq-length") {
    throw InputFileError(a + " and " + b + ": " + what + "; " + remedy);
}

}  // namespace

void Corpus::write_to(std::map<std::string, std::string>& metadata) const {
    metadata[kData] = data;
    metadata[kSeqLength] = std::to_string(seq_length);
    metadata[kSamples] = std::to_string(samples);
}

Corpus Corpus::read_from(const std::map<std::string, std::string>& metadata,
                         const std::string& path) {
    const auto text = [&](const char* key) {
        const auto found = metadata.find(key);
        if (found == metadata.end()) {
            throw InputFileError(path + ": metadata: " + key +
                                 " is missing; make the file with vocabpipe select");
        }
        return found->second;
    };
    const auto number = [&](const char* key) {
        const auto value = parse_number<int64_t>(text(key));
        if (!value || *value < 0) {
            throw InputFileError(path + ": metadata: " + key + " is \"" + text(key) +
                                 "\"; it must be a number of at least 0");
        }
        return *value;
    };
    return {.data = text(kData), .seq_length = number(kSeqLength), .samples = number(kSamples)};
}

void Corpus::check_same(const Corpus& a, const std::string& path_a, const Corpus& b,
                        const std::string& path_b) {
    if (a.samples != b.samples) {
        const std::string counts = "made from " + std::to_string(a.samples) + " and " +
                                   std::to_string(b.samples) + " samples";
        // Neither files of others nor what is in memory know a --seq-length.
        if (a.seq_length == 0 || b.seq_length == 0) {
            refuse(path_a, path_b, counts, "use those of the same samples");
        }
        refuse(path_a, path_b, counts);
    }
    if (a.seq_length != 0 && b.seq_length != 0 && a.seq_length != b.seq_length) {
        refuse(path_a, path_b,
               "made from samples of " + std::to_string(a.seq_length) + " and " +
                   std::to_string(b.seq_length) + " tokens");
    }
    if (!a.data.empty() && !b.data.empty() && a.data != b.data) {
        refuse(path_a, path_b,
               "made from different data: \"" + a.data + "\" and \"" + b.data + "\"");
    }
}

}  // namespace vocabpipe
