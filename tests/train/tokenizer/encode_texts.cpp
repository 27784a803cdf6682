// SPDX-License-Identifier: Apache-2.0
// encode_texts TOKENIZER < texts > ids
//
// What compare_tokenizers.py runs. In: texts, each as the number of its bytes (uint32), then the
// bytes. Out, for each: the number of ids (uint32), the ids (int32), the byte at which each begins
// (uint32), and what they decode to, as the texts are.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "src/train/tokenizer/open_tokenizer.hpp"
#include "vocabpipe/error.hpp"

namespace {

using namespace vocabpipe;

void write(const void* data, size_t bytes) {
    if (bytes > 0 && std::fwrite(data, bytes, 1, stdout) != 1) {
        throw OutputFileError("standard output: cannot write");
    }
}

void write_count(size_t count) {
    const auto number = static_cast<uint32_t>(count);
    write(&number, sizeof number);
}

void encode_all(const Tokenizer& tokenizer) {
    std::string text;
    std::vector<int32_t> ids, again;
    std::vector<size_t> begins;
    for (uint32_t bytes = 0; std::fread(&bytes, sizeof bytes, 1, stdin) == 1;) {
        text.resize(bytes);
        if (bytes > 0 && std::fread(text.data(), bytes, 1, stdin) != 1) {
            throw InputFileError("standard input: ends within a text");
        }
        ids.clear();
        again.clear();
        begins.clear();
        tokenizer.encode(text, ids);
        tokenizer.encode_with_begins(text, again, begins);
        if (ids != again)
            throw Error(ExitCode::failed, "ids with begins differ from those without");
        write_count(ids.size());
        write(ids.data(), ids.size() * sizeof(int32_t));
        for (const size_t begin : begins) write_count(begin);
        const std::string decoded = tokenizer.decode(ids);
        write_count(decoded.size());
        write(decoded.data(), decoded.size());
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (argc != 2) throw UsageError("usage: encode_texts TOKENIZER");
        encode_all(*open_tokenizer(argv[1]));
        return std::fflush(stdout) == 0 ? 0 : 1;
    } catch (const Error& error) {
        std::fprintf(stderr, "encode_texts: error: %s\n", error.what());
        return static_cast<int>(error.exit_code());
    }
}
